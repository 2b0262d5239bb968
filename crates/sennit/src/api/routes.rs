//! What there is to call.
//!
//! [`routes`] is the one place that says so; router and OpenAPI description follow it.

use std::{future::Future, pin::Pin, sync::Arc};

use axum::{
    body::Bytes,
    http::{HeaderValue, Method, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

use super::{
    Role,
    call::{Call, check_role},
    describe, live,
    problem::Problem,
    watch,
};
use crate::{
    control,
    flow::FlowName,
    site::SiteName,
    status::{self, FlowReason, LinkStatus, SiteStatus, State, Status, TunnelStatus, flow_reasons},
};

type Answer = Pin<Box<dyn Future<Output = Result<Response, Problem>> + Send>>;

/// One thing to call.
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    /// What one must be allowed; nothing for those that tell nothing.
    pub(super) role: Option<Role>,
    pub(super) summary: &'static str,
    /// What may stand in the query, each with what it is for.
    pub(super) query: &'static [(&'static str, &'static str)],
    pub(super) gives: Gives,
    pub(super) answer: fn(Call) -> Answer,
}

/// What a route answers with.
#[derive(Clone, Copy)]
pub(super) enum Gives {
    /// JSON of this schema.
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// JSON that depends on the request.
    Any,
    /// Server-sent events.
    Events,
    Text,
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

fn get(
    path: &'static str,
    summary: &'static str,
    gives: Gives,
    answer: fn(Call) -> Answer,
) -> Route {
    Route {
        method: Method::GET,
        path,
        role: Some(Role::Read),
        summary,
        query: &[],
        gives,
        answer,
    }
}

const FLOWS: (&str, &str) = ("flows", "`true` for the busiest flows of each tunnel");

/// Everything.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route {
            role: None,
            ..get(
                "/v1",
                "What this is, and what the caller may do",
                Gives::Json(schema::<Index>),
                |call| Box::pin(async move { json(&Index::new(call.role)) }),
            )
        },
        Route {
            role: None,
            ..get("/v1/openapi.json", "This description", Gives::Text, |_| {
                Box::pin(async { json(&describe::openapi()) })
            })
        },
        Route {
            role: None,
            ..get(
                "/healthz",
                "Whether the daemon answers",
                Gives::Json(schema::<Health>),
                |call| Box::pin(health(call, |_| true)),
            )
        },
        Route {
            role: None,
            ..get(
                "/readyz",
                "Whether traffic can flow: 503 if not",
                Gives::Json(schema::<Health>),
                |call| {
                    Box::pin(health(call, |state| {
                        matches!(state, State::Up | State::Degraded)
                    }))
                },
            )
        },
        Route {
            query: &[FLOWS],
            ..get(
                "/v1/status",
                "The whole status, sennit.status/1",
                Gives::Json(schema::<Status>),
                |call| Box::pin(whole(call)),
            )
        },
        Route {
            query: &[FLOWS],
            ..get(
                "/v1/live",
                "The status each second, as `status` events",
                Gives::Events,
                |call| {
                    Box::pin(
                        async move { live::stream(Arc::clone(&call.shared), call.flag("flows")?) },
                    )
                },
            )
        },
        get(
            "/v1/links",
            "The links of an edge",
            Gives::Json(schema::<Links>),
            |call| Box::pin(async move { json(&Links::of(&*call.summary().await?)) }),
        ),
        get(
            "/v1/links/{name}",
            "One link",
            Gives::Json(schema::<LinkStatus>),
            |call| {
                Box::pin(async move {
                    let name = call.part("name");
                    let links = call.summary().await?.links.clone();
                    one(
                        links.into_iter().find(|link| link.name == name),
                        "link",
                        &name,
                    )
                })
            },
        ),
        get(
            "/v1/classes",
            "The tunnels, one for each class of each site",
            Gives::Json(schema::<Classes>),
            |call| Box::pin(async move { json(&Classes::of(&*call.summary().await?)) }),
        ),
        get(
            "/v1/classes/{name}",
            "The tunnels of one class",
            Gives::Json(schema::<Classes>),
            |call| {
                Box::pin(async move {
                    let name = call.part("name");
                    let mut classes = Classes::of(&*call.summary().await?);
                    classes.tunnels.retain(|tunnel| tunnel.class == name);
                    let found = Some(classes).filter(|classes| !classes.tunnels.is_empty());
                    one(found, "class", &name)
                })
            },
        ),
        get(
            "/v1/sites",
            "The sites that have a tunnel to a hub",
            Gives::Json(schema::<Sites>),
            |call| Box::pin(async move { json(&Sites::of(&*call.summary().await?)) }),
        ),
        get(
            "/v1/sites/{name}",
            "One site",
            Gives::Json(schema::<SiteStatus>),
            |call| {
                Box::pin(async move {
                    let name = call.part("name");
                    let sites = call.summary().await?.sites.clone();
                    one(
                        sites.into_iter().find(|it| it.name.as_str() == name),
                        "site",
                        &name,
                    )
                })
            },
        ),
        Route {
            query: &[(
                "match",
                "only flows with this end, like `10.9.0.2:5201` or `udp`",
            )],
            ..get(
                "/v1/flows",
                "Flows, and why each goes where it goes",
                Gives::Json(schema::<Flows>),
                |call| Box::pin(flows(call)),
            )
        },
        Route {
            method: Method::POST,
            role: Some(Role::Operate),
            ..get(
                "/v1/sites/{name}/disconnect",
                "End the tunnels of a site at a hub; it may come back at once",
                Gives::Json(schema::<Done>),
                |call| Box::pin(disconnect(call)),
            )
        },
        Route {
            method: Method::POST,
            ..get(
                "/v1/command",
                "A command of the control socket; which role it needs depends on it",
                Gives::Any,
                |call| Box::pin(any_command(call)),
            )
        },
    ]
}

pub(super) fn json(document: &impl Serialize) -> Result<Response, Problem> {
    let text = serde_json::to_vec(document).expect("a document becomes JSON");
    Ok(json_text(text.into()))
}

fn json_text(text: Bytes) -> Response {
    let kind = (
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    ([kind], text).into_response()
}

fn one(found: Option<impl Serialize>, what: &str, name: &str) -> Result<Response, Problem> {
    match found {
        Some(found) => json(&found),
        None => {
            let name = name.escape_debug();
            Err(Problem::not_found(format!(
                "there is no {what} `{name}` here"
            )))
        }
    }
}

/// What is at `/v1`.
#[derive(Serialize, JsonSchema)]
struct Index {
    /// `sennit.api/1`.
    schema: &'static str,
    version: &'static str,
    /// What the caller may do; absent if nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<Role>,
    openapi: &'static str,
}

impl Index {
    fn new(role: Option<Role>) -> Self {
        Self {
            schema: "sennit.api/1",
            version: env!("CARGO_PKG_VERSION"),
            role,
            openapi: "/v1/openapi.json",
        }
    }
}

/// How the daemon is, for a load balancer or a container's health check.
#[derive(Serialize, JsonSchema)]
struct Health {
    state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

async fn health(call: Call, good: fn(State) -> bool) -> Result<Response, Problem> {
    let status = call.summary().await?;
    let code = if good(status.state) {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    // Who may not read learns no more than a word.
    let reason = status.reason.clone().filter(|_| call.role.is_some());
    let state = status.state;
    Ok((code, json(&Health { state, reason })?).into_response())
}

async fn whole(call: Call) -> Result<Response, Problem> {
    let flows = call.flag("flows")?;
    Ok(json_text(call.shared.watch.status(flows).await?.json))
}

/// The links of an edge.
#[derive(Serialize, JsonSchema)]
struct Links {
    /// `sennit.links/1`.
    schema: &'static str,
    time: String,
    links: Vec<LinkStatus>,
}

impl Links {
    fn of(status: &Status) -> Self {
        Self {
            schema: "sennit.links/1",
            time: status.time.clone(),
            links: status.links.clone(),
        }
    }
}

/// The tunnels.
#[derive(Serialize, JsonSchema)]
struct Classes {
    /// `sennit.classes/1`.
    schema: &'static str,
    time: String,
    tunnels: Vec<TunnelStatus>,
}

impl Classes {
    fn of(status: &Status) -> Self {
        Self {
            schema: "sennit.classes/1",
            time: status.time.clone(),
            tunnels: status.tunnels.clone(),
        }
    }
}

/// The sites at a hub.
#[derive(Serialize, JsonSchema)]
struct Sites {
    /// `sennit.live-sites/1`.
    schema: &'static str,
    time: String,
    sites: Vec<SiteStatus>,
}

impl Sites {
    fn of(status: &Status) -> Self {
        Self {
            schema: "sennit.live-sites/1",
            time: status.time.clone(),
            sites: status.sites.clone(),
        }
    }
}

/// Flows with their reasons, as `sennit why --flows --json` prints them.
#[derive(Serialize, JsonSchema)]
struct Flows {
    /// `sennit.why/1`.
    schema: &'static str,
    flows: Vec<FlowReason>,
}

async fn flows(call: Call) -> Result<Response, Problem> {
    let wanted = call.query.get("match").filter(|it| !it.is_empty());
    let sight = match wanted {
        None => call.shared.watch.status(true).await?,
        Some(text) => {
            let flow: FlowName = text.parse().map_err(|error| {
                Problem::bad_request(format!("{error}: it is named like 10.9.0.2:5201"))
            })?;
            call.shared
                .watch
                .look(control::Request::Flow { flow })
                .await?
        }
    };
    json(&Flows {
        schema: "sennit.why/1",
        flows: flow_reasons(&sight.status),
    })
}

/// It is done.
#[derive(Serialize, JsonSchema)]
struct Done {}

async fn disconnect(call: Call) -> Result<Response, Problem> {
    let site: SiteName = call
        .part("name")
        .parse()
        .map_err(|error: crate::site::BadSiteName| Problem::bad_request(error.to_string()))?;
    let here = call.summary().await?;
    if here.role == status::Role::Hub && !here.sites.iter().any(|it| it.name == site) {
        return Err(Problem::not_found(format!(
            "site `{site}` has no tunnel here"
        )));
    }
    command(call, control::Request::Disconnect { site }).await
}

/// What one must be allowed for a command.
fn role_for(command: &control::Request) -> Role {
    match command {
        control::Request::Status
        | control::Request::Summary
        | control::Request::Flow { .. }
        | control::Request::Packet { .. } => Role::Read,
        control::Request::Link { order, .. } if *order == control::LinkOrder::Describe => {
            Role::Read
        }
        control::Request::Disconnect { .. } | control::Request::Link { .. } => Role::Operate,
        control::Request::Reload { .. } | control::Request::Keep => Role::Admin,
    }
}

async fn any_command(call: Call) -> Result<Response, Problem> {
    let request: control::Request = serde_json::from_slice(&call.body)
        .map_err(|error| Problem::bad_request(format!("the body is no command: {error}")))?;
    check_role(call.role, Some(role_for(&request)))?;
    command(call, request).await
}

/// Has the daemon do something.
async fn command(call: Call, request: control::Request) -> Result<Response, Problem> {
    let ask = Arc::clone(&call.shared.ask);
    match watch::in_background(move || ask.answer(request)).await? {
        control::Response::Document(document) => json(&document),
        control::Response::Refused(refused) => Err(Problem::refused(&refused)),
    }
}
