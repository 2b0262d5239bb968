//! Why each link carries what it carries: the answer of `sennit why`.

use serde::Serialize;

use super::{PathState, Role, Status};

/// One path of one tunnel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reason {
    /// At a hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    pub class: String,
    pub link: String,
    pub state: PathState,
    /// Of what the tunnel sent lately, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_ratio: Option<f64>,
    pub why: String,
}

/// The reasons for all paths, or for those on one link.
pub fn reasons(status: &Status, link: Option<&str>) -> Vec<Reason> {
    let mut all = Vec::new();
    for tunnel in &status.tunnels {
        let site = (status.role == Role::Hub).then(|| tunnel.site.to_string());
        all.extend(tunnel.paths.iter().map(|path| {
            Reason {
                site: site.clone(),
                class: tunnel.class.clone(),
                link: path
                    .link
                    .clone()
                    .unwrap_or_else(|| format!("path {}", path.id)),
                state: path.state,
                share_ratio: path.share_ratio,
                why: path.why.clone(),
            }
        }));
    }
    all.retain(|reason| link.is_none_or(|link| reason.link == link));
    all
}

/// One line each, under a heading for each tunnel.
pub fn render_reasons(reasons: &[Reason]) -> String {
    let width = reasons
        .iter()
        .map(|reason| reason.link.chars().count())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    let mut heading = None;
    for reason in reasons {
        let tunnel = match &reason.site {
            Some(site) => format!("site {site}, class {}", reason.class),
            None => format!("class {}", reason.class),
        };
        if heading.as_ref() != Some(&tunnel) {
            text += &format!("{tunnel}\n");
            heading = Some(tunnel);
        }
        let share = reason
            .share_ratio
            .map_or("-".into(), |share| format!("{:.0} %", 100.0 * share));
        text += &format!("  {:width$}  {share:>5}  {}\n", reason.link, reason.why);
    }
    text
}
