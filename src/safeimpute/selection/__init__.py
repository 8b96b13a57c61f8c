"""Selection: calibration errors and risks decide which imputations are released, and what that promises."""
