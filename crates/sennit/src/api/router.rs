//! The router of all routes: from a request to the one that answers it.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Router,
    body::Bytes,
    extract::{FromRequestParts as _, Query, RawPathParams, Request},
    http::{HeaderValue, Method, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::{MethodFilter, on},
};

use super::{
    Shared,
    call::{Call, Caller, check_role, read_body},
    page,
    problem::Problem,
    routes::{Route, routes},
};

/// The router of all routes.
pub(super) fn router(shared: &Arc<Shared>) -> Router {
    let mut router = Router::new();
    for route in routes() {
        let filter = MethodFilter::try_from(route.method.clone()).expect("it is a usual method");
        let (path, shared) = (route.path, Arc::clone(shared));
        let route = Arc::new(route);
        let handler = move |request: Request| {
            let (route, shared) = (Arc::clone(&route), Arc::clone(&shared));
            async move {
                match handle(&route, shared, request).await {
                    Ok(response) => with_headers(response),
                    Err(problem) => with_headers(problem.into_response()),
                }
            }
        };
        router = router.route(path, on(filter, handler));
    }
    router
        .merge(page::router(shared))
        .method_not_allowed_fallback(|| async {
            let status = StatusCode::METHOD_NOT_ALLOWED;
            Problem::new(status, "method_not_allowed", "this has no such method")
        })
        .fallback(|| async { Problem::not_found("there is no such resource") })
}

/// What keeps a browser from taking an answer for something else, or showing it to others.
fn with_headers(mut response: Response) -> Response {
    let fixed = [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    for (name, value) in fixed {
        let value = HeaderValue::from_static(value);
        response.headers_mut().entry(name).or_insert(value);
    }
    response
}

async fn handle(route: &Route, shared: Arc<Shared>, request: Request) -> Result<Response, Problem> {
    let (mut parts, body) = request.into_parts();
    let caller = parts.extensions.get::<Caller>().cloned();
    let Caller {
        role,
        shown,
        client,
    } = caller.unwrap_or_default();
    check_role(role, route.role)?;
    let query = Query::<BTreeMap<String, String>>::try_from_uri(&parts.uri)
        .map_err(|error| Problem::bad_request(error.body_text()))?
        .0;
    if let Some(unknown) = query
        .keys()
        .find(|key| !route.query.iter().any(|(it, _)| it == key))
    {
        let detail = format!("there is no parameter `{}` here", unknown.escape_debug());
        return Err(Problem::bad_request(detail));
    }
    let path = RawPathParams::from_request_parts(&mut parts, &()).await;
    let path = path.map_err(|error| Problem::bad_request(error.body_text()))?;
    let path = path
        .iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let body = match route.method {
        Method::GET => Bytes::new(),
        _ => read_body(&parts.headers, body, route.body_bytes).await?,
    };
    let call = Call {
        path: path.collect(),
        shared,
        client,
        query,
        role,
        shown,
        body,
        headers: parts.headers,
    };
    (route.answer)(call).await
}
