"""Reports on evaluations: one page to look at and to listen to, one table to cite."""
