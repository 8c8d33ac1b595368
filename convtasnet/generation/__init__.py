"""Making data sets from corpora and lists: what the recipes share."""
