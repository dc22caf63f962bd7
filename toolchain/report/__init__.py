"""Records as a report: one view of them, and the forms that it is written in."""
