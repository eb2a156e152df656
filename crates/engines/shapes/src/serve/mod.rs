//! HTTP: what requests mean, and what answers look like.

