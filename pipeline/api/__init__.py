"""What `import corpusmill` offers of the pipeline: recipes, stages as functions on tables, questions to finished runs."""
