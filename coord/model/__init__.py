"""The vocabulary: ids, events, decisions, entities, rejections. Imports nothing else of ours."""
