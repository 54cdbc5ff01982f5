"""Exact substrings: runs of at least N equal tokens in two places of the corpus; all but the first are cut.

The goal is that of Lee et al. 2021, "Deduplicating training data makes language models better"; the way is another
one. A suffix array wants the whole corpus in one address space, eight bytes of index or more for each byte of text,
and reads it at random. Here everything is hashed: linear passes over the texts, and between them records that are cut
by ranges of hashes and travel through storage, so that a task holds what its budget allows, whatever the corpus.

What is cut. Documents have an order: those that may not lose anything first, then by the priority of their
source, then by id. Every window of N tokens that also occurs earlier, in a document before its own or before it
in the same one without overlapping it, is cut; what is cut of a text is the union of its windows. So:

1. Of a run of N or more equal tokens in two places that do not overlap, the later one is cut whole, unless it lies
   in a document that may not lose anything.
2. Nothing is lost. Each token that is cut stands, with the same window of N tokens around it, at an earlier
   place; that place may be cut in its turn, for an even earlier one, but the order has a beginning. So each
   token stays at the first of the places that such windows link. One copy of a passage stays whole if its
   first place holds nothing else that is repeated; else its parts stay, each in the first place of its own.
3. A text of repetitions ("ha ha ha ...") keeps its first N tokens, rounded up to a whole period.
4. The result depends on documents and order alone: not on partitions, ranges, workers or memory.

What is not promised: cutting brings together what stood apart, and runs that come about only so are not searched
for; a passage cut in two by a shorter repeat stays in two places.

How it is found (`substring_deduplication.py`), with far less than a record for every token:

- `scan`, per partition: anchors, a winnowed choice of the hashes of k < N tokens (`anchor_kernels.py`). Two equal windows
  share an anchor. Of each distinct one of a partition 8 bytes go to its range.
- `repeats`, per range: which anchors occur twice; one byte back for each.
- `blocks`, per partition: the windows that elect the same repeated anchor, as one unit. Of equal
  ones in a chunk of documents only the first goes to its range, so that nothing is hot.
- `settle`, per range: if all blocks with an anchor are equal, the first of them stays and the others go; where
  blocks differ, at the ends of repeated runs, the first of each kind is contested.
- `windows`, `elect`: the same once more, for the single windows of contested blocks.
- `cut`, per partition: the union of all that goes, as spans. Texts are read where windows were contested.

Equality is judged by hashes: at least 96 bits for a unit, of tokens of 64 bits. Texts are never compared.
"""
