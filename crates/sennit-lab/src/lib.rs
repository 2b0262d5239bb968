//! Namespaces, emulated links, traffic, measurement and reports.
