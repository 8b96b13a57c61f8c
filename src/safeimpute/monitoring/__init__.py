"""Nights after the fit: entries, tests, alarms, recalibration."""
