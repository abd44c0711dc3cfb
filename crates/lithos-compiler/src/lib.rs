//! From a graph to a schedule of tasks, phases and regions, with its memory plan and weight layout.
