"""The report of a run: one HTML file that needs no network.

A reader's map::

    facts: all that is known of a run (measured again where the database keeps sums only)
        -> timeuse, timeline, memory, subgraphs, search: what is drawn, as columns of numbers
        -> schedule_charts, search_charts: Vega-Lite specifications
        -> sections: prose, tables and figures
        -> document: one file with its style, its script and the plotting library
"""
