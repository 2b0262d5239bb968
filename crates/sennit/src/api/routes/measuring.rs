//! What is measured by an edge, on a thread of its own while somebody waits for it.

use axum::http::Method;

use super::{Gives, Route, get, schema};
use crate::{
    api::{
        Role,
        answers::{drill, speedtest, start_drill, start_speedtest},
    },
    control::{DrillOrder, DrillWish},
    drill::DrillRun,
    speedtest::{Speedtest, SpeedtestOrder, SpeedtestWish},
};

/// Links that are lost on purpose.
pub(super) fn drills() -> Vec<Route> {
    vec![
        get(
            "/v1/links/{name}/drill",
            "The drill of a link that runs, or ran last; one that runs ends if nobody asks for four seconds",
            Gives::Json(schema::<DrillRun>),
            |call| Box::pin(drill(call, DrillOrder::Look)),
        ),
        Route {
            method: Method::POST,
            role: Some(Role::Operate),
            takes: Some(schema::<DrillWish>),
            ..get(
                "/v1/links/{name}/drill",
                "Lose a link while pings pass, and say how long none came through; 409 if a drill runs already",
                Gives::Json(schema::<DrillRun>),
                |call| Box::pin(start_drill(call)),
            )
        },
        Route {
            method: Method::DELETE,
            role: Some(Role::Operate),
            ..get(
                "/v1/links/{name}/drill",
                "Restore the link of the drill that runs",
                Gives::Json(schema::<DrillRun>),
                |call| Box::pin(drill(call, DrillOrder::Stop)),
            )
        },
    ]
}

/// Speed tests.
pub(super) fn speedtests() -> Vec<Route> {
    vec![
        get(
            "/v1/speedtest",
            "The speed test of an edge that runs, or ran last",
            Gives::Json(schema::<Speedtest>),
            |call| Box::pin(speedtest(call, SpeedtestOrder::Look)),
        ),
        Route {
            method: Method::POST,
            role: Some(Role::Operate),
            takes: Some(schema::<SpeedtestWish>),
            ..get(
                "/v1/speedtest",
                "Measure what the tunnel carries, or links of it one by one; 409 if a test runs already",
                Gives::Json(schema::<Speedtest>),
                |call| Box::pin(start_speedtest(call)),
            )
        },
        Route {
            method: Method::DELETE,
            role: Some(Role::Operate),
            ..get(
                "/v1/speedtest",
                "Stop the speed test that runs",
                Gives::Json(schema::<Speedtest>),
                |call| Box::pin(speedtest(call, SpeedtestOrder::Stop)),
            )
        },
    ]
}
