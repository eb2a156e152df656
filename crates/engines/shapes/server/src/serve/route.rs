//! Which of the shapes' addresses a path is, however it is spelled. Rights are checked by the route, never by the path.

use thalweg_shapes_core::request::query::decoded;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// `/`
    Root,
    /// `/v1/shape`
    Shape,
    /// `/v1/health`
    Health,
    Unknown,
}

impl Route {
    /// `path`: as sent. Empty segments do not count, others are percent-decoded one by one.
    #[must_use]
    pub(crate) fn of(path: &str) -> Self {
        let mut segments = path.split('/').filter(|segment| !segment.is_empty()).map(decoded);
        match (segments.next(), segments.next(), segments.next()) {
            (None, ..) => Self::Root,
            (Some(Ok(version)), Some(Ok(name)), None) if version == "v1" => match &*name {
                "shape" => Self::Shape,
                "health" => Self::Health,
                _ => Self::Unknown,
            },
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_a_path_are_one_route() {
        for path in ["/v1/shape", "/v1//shape", "/v1/%73hape", "//%76%31/shape/"] {
            assert_eq!(Route::of(path), Route::Shape, "{path}");
        }
        assert_eq!(Route::of("/v1/health"), Route::Health);
        assert_eq!(Route::of("/"), Route::Root);
        for path in ["/v1", "/v1/shape/x", "/v1%2Fshape", "/V1/shape", "/v1/shap", "/v1/%2573hape", "/v1/sh%ape"] {
            assert_eq!(Route::of(path), Route::Unknown, "{path}");
        }
    }
}
