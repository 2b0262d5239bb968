//! What routes answer, and with which documents.

use std::sync::Arc;

use axum::{
    body::Bytes,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Role,
    call::{Call, check_role},
    live, portions,
    problem::Problem,
    watch::{Paths, Scope},
};
use crate::{
    control::{self, ConfigOrder, DrillOrder, InvitationsOrder},
    flow::FlowName,
    history::Step,
    journal::Wanted,
    metrics::{self, Format, Sources},
    site::SiteName,
    speedtest::{SpeedtestOrder, SpeedtestWish},
    status::{self, FlowReason, SiteStatus, State, Status, TunnelStatus, flow_reasons},
};

pub(super) fn json(document: &impl Serialize) -> Result<Response, Problem> {
    let text = serde_json::to_vec(document).expect("a document becomes JSON");
    Ok(json_text(text.into()))
}

pub(super) fn json_text(text: Bytes) -> Response {
    let kind = (
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    ([kind], text).into_response()
}

pub(super) fn one(
    found: Option<impl Serialize>,
    what: &str,
    name: &str,
) -> Result<Response, Problem> {
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
pub(super) struct Index {
    /// `sennit.api/1`.
    schema: &'static str,
    version: &'static str,
    /// What the caller may do; absent if nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<Role>,
    openapi: &'static str,
}

impl Index {
    pub(super) fn new(role: Option<Role>) -> Self {
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
pub(super) struct Health {
    state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

pub(super) async fn health(call: Call, good: fn(State) -> bool) -> Result<Response, Problem> {
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

pub(super) async fn whole(call: Call) -> Result<Response, Problem> {
    Ok(json_text(
        call.shared.watch.status(call.scope()?).await?.json,
    ))
}

/// The tunnels.
#[derive(Serialize, JsonSchema)]
pub(super) struct Classes {
    /// `sennit.classes/1`.
    schema: &'static str,
    time: String,
    pub(super) tunnels: Vec<TunnelStatus>,
}

impl Classes {
    pub(super) fn of(status: &Status) -> Self {
        Self {
            schema: "sennit.classes/1",
            time: status.time.clone(),
            tunnels: status.tunnels.clone(),
        }
    }
}

/// The sites at a hub.
#[derive(Serialize, JsonSchema)]
pub(super) struct Sites {
    /// `sennit.live-sites/1`.
    schema: &'static str,
    time: String,
    sites: Vec<SiteStatus>,
}

impl Sites {
    pub(super) fn of(status: &Status) -> Self {
        Self {
            schema: "sennit.live-sites/1",
            time: status.time.clone(),
            sites: status.sites.clone(),
        }
    }
}

/// Flows with their reasons, as `sennit why --flows --json` prints them.
#[derive(Serialize, JsonSchema)]
pub(super) struct Flows {
    /// `sennit.why/1`.
    schema: &'static str,
    flows: Vec<FlowReason>,
}

pub(super) async fn flows(call: Call) -> Result<Response, Problem> {
    let wanted = call.query.get("match").filter(|it| !it.is_empty());
    let sight = match wanted {
        None => call.shared.watch.status(Scope::WHOLE).await?,
        Some(text) => {
            let flow: FlowName = text.parse().map_err(|error| {
                Problem::bad_request(format!("{error}: it is named like 10.9.0.2:5201"))
            })?;
            call.shared.watch.wait_apart().await?;
            call.shared
                .watch
                .look(control::Request::Flow { flow }, Paths::All)
                .await?
        }
    };
    json(&Flows {
        schema: "sennit.why/1",
        flows: flow_reasons(&sight.status),
    })
}

pub(super) async fn events(call: Call) -> Result<Response, Problem> {
    let wanted = Wanted {
        after: call.last_event().or(call.number("after")?),
        since_seconds: call.number("since")?,
        limit: call.number("limit")?.map(|limit| limit as usize),
        wait_seconds: None,
    };
    if call.wants_stream() {
        return live::events(&call, &wanted).await;
    }
    json(&call.shared.journal.read(&wanted))
}

pub(super) async fn history(call: Call) -> Result<Response, Problem> {
    let named = |name: &String| {
        let wrong = || Problem::bad_request("`step` is second, minute or hour");
        Step::named(name).ok_or_else(wrong)
    };
    let step = call.query.get("step").map_or(Ok(Step::Second), named)?;
    let since = call.number("since")?.unwrap_or(u64::MAX);
    let (archive, series) = (
        call.shared.archive.clone(),
        call.query.get("series").cloned(),
    );
    let read = move || {
        let history = archive.read(step, since, series.as_deref());
        history.map(|it| serde_json::to_vec(&it).expect("a document becomes JSON"))
    };
    call.shared.watch.wait_apart().await?;
    // A year of all series is millions of rows.
    let place = portions::place(&call.shared, &call.client).await?;
    let read = call.shared.watch.in_background(read).await?;
    let text = read.map_err(|error| {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let detail = format!("the history cannot be read: {error}");
        Problem::new(status, "no_history", detail)
    })?;
    let mut answer = json_text(text.into());
    answer.extensions_mut().insert(place);
    Ok(answer)
}

pub(super) async fn metrics(call: Call) -> Result<Response, Problem> {
    let status = call.summary().await?;
    let events = call.shared.journal.tally();
    let format = call
        .header(header::ACCEPT)
        .map_or(Format::Prometheus, Format::accepted);
    let sources = Sources {
        status: &status,
        events: &events,
    };
    let kind = HeaderValue::from_static(format.content_type());
    let text = metrics::text(&sources, format);
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// It is done.
#[derive(Serialize, JsonSchema)]
pub(super) struct Done {}

pub(super) async fn disconnect(call: Call) -> Result<Response, Problem> {
    let site = site(&call)?;
    let here = call.summary().await?;
    let has_tunnel = |it: &SiteStatus| it.name == site && !it.is_away();
    if here.role == status::Role::Hub && !here.sites.iter().any(has_tunnel) {
        return Err(Problem::not_found(format!(
            "site `{site}` has no tunnel here"
        )));
    }
    command(call, control::Request::Disconnect { site }).await
}

/// What one must be allowed for a command.
pub(super) fn role_for(command: &control::Request) -> Role {
    match command {
        control::Request::Status
        | control::Request::Summary
        | control::Request::Events { .. }
        | control::Request::Packet { .. }
        | control::Request::Flow { .. }
        | control::Request::Usage
        | control::Request::Leases
        | control::Request::Speedtest {
            order: SpeedtestOrder::Look,
        } => Role::Read,
        control::Request::Drill { order, .. } if *order == DrillOrder::Look => Role::Read,
        control::Request::Link { order, .. } if *order == control::LinkOrder::Describe => {
            Role::Read
        }
        control::Request::Disconnect { .. }
        | control::Request::Link { .. }
        | control::Request::Drill { .. }
        | control::Request::Limit { .. }
        | control::Request::Speedtest { .. } => Role::Operate,
        control::Request::Reload { .. }
        | control::Request::Identity
        | control::Request::Keep
        | control::Request::Invitations { .. }
        | control::Request::Config { .. } => Role::Admin,
    }
}

pub(super) async fn any_command(call: Call) -> Result<Response, Problem> {
    let request: control::Request = serde_json::from_slice(&call.body)
        .map_err(|error| Problem::bad_request(format!("the body is no command: {error}")))?;
    let role = role_for(&request);
    check_role(call.role, Some(role))?;
    let watch = &call.shared.watch;
    match request {
        control::Request::Status => Ok(json_text(watch.status(Scope::WHOLE).await?.json)),
        control::Request::Summary => Ok(json_text(watch.status(Scope::SUMMARY).await?.json)),
        control::Request::Events { wanted } if wanted.wait_seconds.is_some() => {
            // It would hold a thread that others need.
            let instead = "`wait_seconds` is for the control socket: /v1/events is a stream";
            Err(Problem::bad_request(instead))
        }
        control::Request::Events { wanted } => json(&call.shared.journal.read(&wanted)),
        request => {
            if role == Role::Read {
                watch.wait_apart().await?;
            }
            command(call, request).await
        }
    }
}

pub(super) async fn speedtest(call: Call, order: SpeedtestOrder) -> Result<Response, Problem> {
    command(call, control::Request::Speedtest { order }).await
}

pub(super) async fn start_speedtest(call: Call) -> Result<Response, Problem> {
    let wish = call.document::<SpeedtestWish>()?.unwrap_or_default();
    speedtest(call, SpeedtestOrder::Start(wish)).await
}

pub(super) async fn drill(call: Call, order: DrillOrder) -> Result<Response, Problem> {
    let link = call.part("name");
    command(call, control::Request::Drill { link, order }).await
}

pub(super) async fn start_drill(call: Call) -> Result<Response, Problem> {
    let wish = call.document()?.unwrap_or_default();
    drill(call, DrillOrder::Start(wish)).await
}

pub(super) async fn config(call: Call, order: ConfigOrder) -> Result<Response, Problem> {
    command(call, control::Request::Config { order }).await
}

/// A text of the config.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckWish {
    text: String,
}

pub(super) async fn check_config(call: Call) -> Result<Response, Problem> {
    let CheckWish { text } = call.needed()?;
    config(call, ConfigOrder::Check { text }).await
}

/// A text that is to take the place of another.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ApplyWish {
    text: String,
    /// Of the text that was shown.
    version: String,
    /// It is taken back after this time unless it is kept, and is in the file only then; without it
    /// it is in the file at once.
    #[serde(default)]
    confirm_seconds: Option<u32>,
}

pub(super) async fn apply_config(call: Call) -> Result<Response, Problem> {
    let ApplyWish {
        text,
        version,
        confirm_seconds,
    } = call.needed()?;
    let order = ConfigOrder::Apply {
        text,
        version,
        confirm_seconds,
    };
    config(call, order).await
}

pub(super) async fn invitations(call: Call, order: InvitationsOrder) -> Result<Response, Problem> {
    command(call, control::Request::Invitations { order }).await
}

pub(super) async fn invite(call: Call) -> Result<Response, Problem> {
    let wish = call.needed()?;
    invitations(call, InvitationsOrder::Invite(wish)).await
}

pub(super) async fn withdraw(call: Call) -> Result<Response, Problem> {
    let site = site(&call)?;
    invitations(call, InvitationsOrder::Withdraw { site }).await
}

/// The site that the path names.
fn site(call: &Call) -> Result<SiteName, Problem> {
    let wrong = |error: crate::site::BadSiteName| Problem::bad_request(error.to_string());
    call.part("name").parse().map_err(wrong)
}

/// Has the daemon do something.
pub(super) async fn command(call: Call, request: control::Request) -> Result<Response, Problem> {
    let ask = Arc::clone(&call.shared.ask);
    let watch = &call.shared.watch;
    match watch.in_background(move || ask.answer(request)).await? {
        control::Response::Document(document) => json(&document),
        control::Response::Refused(refused) => Err(Problem::refused(&refused)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The rows of the book's table of commands: the command, and who may give it.
    fn rows() -> Vec<(String, String)> {
        let book = include_str!("../../../../docs/src/api.md");
        let rows = book
            .lines()
            .filter(|line| line.starts_with("| `{\"command\""));
        let rows = rows.map(|row| {
            let command = row.split('`').nth(1).unwrap();
            let role = row.trim_end_matches('|').rsplit('|').next().unwrap();
            (command.to_owned(), role.trim().to_owned())
        });
        rows.collect()
    }

    #[test]
    fn the_book_lists_every_command_as_it_is_taken_with_the_role_that_it_needs() {
        let mut listed = BTreeSet::new();
        for (command, role) in rows() {
            let request: control::Request =
                serde_json::from_str(&command).unwrap_or_else(|error| panic!("{command}: {error}"));
            assert_eq!(
                serde_json::to_value(role_for(&request)).unwrap(),
                role,
                "{command}"
            );
            let request = serde_json::to_value(request).unwrap();
            listed.insert(request["command"].as_str().unwrap().to_owned());
        }

        let schema = serde_json::to_value(schemars::schema_for!(control::Request)).unwrap();
        let variants = schema["oneOf"].as_array().expect("an enum").iter();
        let names = variants.map(|it| it["properties"]["command"]["const"].as_str().unwrap());
        assert_eq!(listed, names.map(Into::into).collect());
    }
}
