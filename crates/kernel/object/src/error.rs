//! Why a bucket cannot be reached or used.

use std::time::Duration;
use thiserror::Error;

/// Why a request to a bucket failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BucketError {
    /// No attempt was answered in time. Whether a write was made, or will be, is unknown. A later try may succeed.
    #[error("the bucket {bucket} did not answer {operation} of {key:?} within {waited:.1?}: {cause}")]
    NoAnswer { bucket: String, operation: &'static str, key: String, waited: Duration, cause: String },
    /// The credentials do not permit the request. Nothing was changed.
    #[error(
        "the bucket {bucket} does not permit {operation} of {key:?}: {cause}; check the credentials and what they may do"
    )]
    Denied { bucket: String, operation: &'static str, key: String, cause: String },
    /// The store knows no bucket of this name.
    #[error("the bucket {bucket} does not exist: make it, or check its name, its region and the endpoint")]
    NoBucket { bucket: String },
    /// The store does not offer the request, or cannot read it. Nothing was changed.
    #[error("the bucket {bucket} refused {operation} of {key:?}: {cause}")]
    Refused { bucket: String, operation: &'static str, key: String, cause: String },
}

/// Why a text is no location of a bucket, or its client cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LocationError {
    /// The text has another form.
    #[error(
        "{text:?} is no location of a bucket: {why}; write s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, \
         file:///folder, or memory: for a try"
    )]
    Form { text: String, why: String },
    /// The settings of the location, or those of the environment, do not fit together.
    #[error("no client can be made for {location}: {cause}")]
    Settings { location: String, cause: String },
}
