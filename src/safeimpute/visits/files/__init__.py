"""Files of visits, one module per kind of file; `visits.tables` opens them."""
