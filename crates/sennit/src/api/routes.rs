//! What there is to call.
//!
//! [`routes`] is the one place that says so; router and OpenAPI description follow it.

mod measuring;

use std::{future::Future, pin::Pin};

use axum::{http::Method, response::Response};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::{
    Role,
    answers::{
        ApplyWish, CheckWish, Classes, Done, Flows, Health, Index, Sites, any_command,
        apply_config, check_config, command, config, disconnect, events, flows, health, history,
        invitations, invite, json, metrics, one, whole, withdraw,
    },
    call::{BODY_BYTES, CONFIG_BYTES, Call},
    live,
    problem::Problem,
};
use crate::{
    control::{
        ConfigCheck, ConfigOrder, ConfigText, Invitations, InvitationsOrder, InviteWish, Invited,
        ReloadAnswer, Request,
    },
    history::History,
    journal::Events,
    leases::Leases,
    status::{Links, ListedLink, SiteStatus, State, Status},
};

/// What becomes of a request.
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
    /// The body, if it may have one.
    pub(super) takes: Option<fn(&mut SchemaGenerator) -> Schema>,
    pub(super) body_bytes: usize,
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
    /// Text of this type.
    Text(&'static str),
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
        takes: None,
        body_bytes: BODY_BYTES,
        gives,
        answer,
    }
}

const SCOPE: &[(&str, &str)] = &[
    ("flows", "`true` for the busiest flows of each tunnel"),
    (
        "paths",
        "`false` to leave out the paths of tunnels, which are most of what a hub with many sites says; `own` to leave out those of a hub",
    ),
];

/// Everything.
pub(super) fn routes() -> Vec<Route> {
    [
        itself(),
        watching(),
        records(),
        links_and_classes(),
        sites_and_flows(),
        measuring::drills(),
        measuring::speedtests(),
        invitations_and_leases(),
        configs(),
        commands(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What it is, and whether it works.
fn itself() -> Vec<Route> {
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
            ..get("/v1/openapi.json", "This description", Gives::Any, |call| {
                Box::pin(async move { json(&call.shared.description) })
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
                |call| Box::pin(health(call, State::is_usable)),
            )
        },
    ]
}

/// What it does.
fn watching() -> Vec<Route> {
    vec![
        Route {
            query: SCOPE,
            ..get(
                "/v1/status",
                "The whole status, sennit.status/1",
                Gives::Json(schema::<Status>),
                |call| Box::pin(whole(call)),
            )
        },
        Route {
            query: SCOPE,
            ..get(
                "/v1/live",
                "The status each second, as `status` events, and what happens, as `event` events",
                Gives::Events,
                |call| Box::pin(live::status(call)),
            )
        },
        Route {
            query: &[
                ("after", "only events after the one with this number"),
                ("since", "only those of the last so many seconds"),
                ("limit", "only so many of them, the newest"),
            ],
            ..get(
                "/v1/events",
                "What happened; with `Accept: text/event-stream` also what happens from now on",
                Gives::Json(schema::<Events>),
                |call| Box::pin(events(call)),
            )
        },
    ]
}

/// What it has kept of that, and metrics.
fn records() -> Vec<Route> {
    vec![
        Route {
            query: &[
                (
                    "step",
                    "`second` (an hour of them, the default), `minute` (a week) or `hour` (a year)",
                ),
                (
                    "since",
                    "the last so many seconds; all that is kept without it",
                ),
                (
                    "series",
                    "`total`, `link/NAME` or `class/NAME`, `link/` for all links; all series without it",
                ),
            ],
            ..get(
                "/v1/history",
                "What went over links and classes, and how they fared",
                Gives::Json(schema::<History>),
                |call| Box::pin(history(call)),
            )
        },
        get(
            "/metrics",
            "Metrics, in the format of Prometheus or OpenMetrics",
            Gives::Text("text/plain"),
            |call| Box::pin(metrics(call)),
        ),
    ]
}

/// The links and classes.
fn links_and_classes() -> Vec<Route> {
    vec![
        get(
            "/v1/links",
            "The links of an edge",
            Gives::Json(schema::<Links>),
            |call| Box::pin(async move { json(&Links::of(&*call.summary().await?)) }),
        ),
        get(
            "/v1/links/{name}",
            "One link",
            Gives::Json(schema::<ListedLink>),
            |call| {
                Box::pin(async move {
                    let name = call.part("name");
                    let links = Links::of(&*call.summary().await?).links;
                    one(
                        links.into_iter().find(|it| it.link.name == name),
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
    ]
}

/// The sites and flows.
fn sites_and_flows() -> Vec<Route> {
    vec![
        get(
            "/v1/sites",
            "The sites of a hub that have joined, also those that are away",
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
    ]
}

/// Who may join a hub, and which addresses sites have.
fn invitations_and_leases() -> Vec<Route> {
    vec![
        Route {
            role: Some(Role::Admin),
            ..get(
                "/v1/invitations",
                "At a hub, the invitations that nobody has used",
                Gives::Json(schema::<Invitations>),
                |call| Box::pin(invitations(call, InvitationsOrder::List)),
            )
        },
        Route {
            method: Method::POST,
            role: Some(Role::Admin),
            takes: Some(schema::<InviteWish>),
            ..get(
                "/v1/invitations",
                "Let a site in: a token that is good once, which is shown this once",
                Gives::Json(schema::<Invited>),
                |call| Box::pin(invite(call)),
            )
        },
        Route {
            method: Method::DELETE,
            role: Some(Role::Admin),
            ..get(
                "/v1/invitations/{name}",
                "Take back the invitation of a site that nobody has used",
                Gives::Json(schema::<Done>),
                |call| Box::pin(withdraw(call)),
            )
        },
        get(
            "/v1/leases",
            "At a hub, which addresses sites have",
            Gives::Json(schema::<Leases>),
            |call| Box::pin(command(call, Request::Leases)),
        ),
    ]
}

/// The config.
fn configs() -> Vec<Route> {
    vec![
        Route {
            role: Some(Role::Admin),
            ..get(
                "/v1/config",
                "The text of the config file",
                Gives::Json(schema::<ConfigText>),
                |call| Box::pin(config(call, ConfigOrder::Show)),
            )
        },
        Route {
            method: Method::POST,
            role: Some(Role::Admin),
            takes: Some(schema::<CheckWish>),
            body_bytes: CONFIG_BYTES,
            ..get(
                "/v1/config/check",
                "What there is to say of another text, and what it would change; nothing is changed",
                Gives::Json(schema::<ConfigCheck>),
                |call| Box::pin(check_config(call)),
            )
        },
        Route {
            method: Method::PUT,
            role: Some(Role::Admin),
            takes: Some(schema::<ApplyWish>),
            body_bytes: CONFIG_BYTES,
            ..get(
                "/v1/config",
                "Run with another text, for good or until it is taken back; `applied` says whether it does",
                Gives::Json(schema::<ReloadAnswer>),
                |call| Box::pin(apply_config(call)),
            )
        },
        Route {
            method: Method::POST,
            role: Some(Role::Admin),
            ..get(
                "/v1/config/keep",
                "What is on trial stays, and goes into the file",
                Gives::Json(schema::<Done>),
                |call| Box::pin(command(call, Request::Keep)),
            )
        },
        Route {
            method: Method::POST,
            role: Some(Role::Admin),
            ..get(
                "/v1/config/revert",
                "Take back at once what is on trial",
                Gives::Json(schema::<Done>),
                |call| Box::pin(config(call, ConfigOrder::Revert)),
            )
        },
    ]
}

/// Whatever the control socket takes.
fn commands() -> Vec<Route> {
    vec![Route {
        method: Method::POST,
        takes: Some(schema::<Request>),
        ..get(
            "/v1/command",
            "A command of the control socket; which role it needs depends on it",
            Gives::Any,
            |call| Box::pin(any_command(call)),
        )
    }]
}
