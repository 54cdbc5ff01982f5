"""Bias and fairness of a model: from the items of tasks (`items`), from sentences with swapped terms (`terms`), from texts of groups
(`texts`) and from what it generates (`toxicity`); `fairness` puts them together for a run."""
