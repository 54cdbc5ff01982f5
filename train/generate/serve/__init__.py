"""`corpusmill serve`: OpenAI's endpoints over one engine, which has a thread of its own (`worker`); requests and answers
(`app`, `protocol`, `answers`), the listening socket and its clients (`server`), figures (`metrics`), and a page to try it (`page`)."""
