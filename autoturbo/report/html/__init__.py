"""The report of a run: one HTML file that needs no network.

A reader's map::

    facts: all that is known of a run (measured again where the database keeps sums only)
        -> time_use, subgraphs, search: numbers that are shown, as columns
        -> charts, markup: Vega-Lite specifications, figures, tables
        -> summary, comparison, timeline, memory, graph_view, search_sections, origin: sections
        -> document: one file with its style, its script and the plotting library
"""
