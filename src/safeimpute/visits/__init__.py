"""From a user's table or a hospital's database to checked visits; the first step of the flow.

Nothing is imported here, so that the array core can use `visits.arrays` without a dataframe library.
"""
