"""The stage `augment`: copies of documents to train on, with noise or rewritten by a function of the user's, in sources of their own."""
