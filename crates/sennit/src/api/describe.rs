//! The OpenAPI description, made from the table of routes.

use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::{
    problem::Problem,
    routes::{Gives, Route, routes},
};

/// The API as an OpenAPI 3.1 document.
pub fn openapi() -> Value {
    let mut settings = SchemaSettings::draft2020_12().for_serialize();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    let mut generator = settings.into_generator();
    let mut bodies = bodies();
    let problem = generator.subschema_for::<Problem>();
    let mut paths = Map::new();
    for route in routes() {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        let good = match route.gives {
            Gives::Json(schema) => {
                json!({ "application/json": { "schema": schema(&mut generator) } })
            }
            Gives::Events => json!({ "text/event-stream": { "schema": { "type": "string" } } }),
            Gives::Any => json!({ "application/json": {} }),
            Gives::Text(kind) => json!({ kind: { "schema": { "type": "string" } } }),
        };
        let bad = json!({
            "description": "It was not done",
            "content": { "application/problem+json": { "schema": problem } },
        });
        let method = route.method.as_str().to_lowercase();
        path[&method] = json!({
            "summary": route.summary,
            "operationId": operation(&route),
            "parameters": parameters(&route),
            "security": route.role.map_or_else(|| json!([]), |role| json!([{ "bearer": [role] }])),
            "responses": {
                "200": { "description": "It was done", "content": good },
                "default": bad,
            },
        });
        if let Some(takes) = route.takes {
            let schema = takes(&mut bodies);
            path[&method]["requestBody"] =
                json!({ "content": { "application/json": { "schema": schema } } });
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Sennit",
            "description": "What a running edge or hub says and does",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": { "bearer": { "type": "http", "scheme": "bearer" } },
        },
    })
}

/// What clients send is described as it is read: fewer fields have to be there than are written.
fn bodies() -> SchemaGenerator {
    let mut settings = SchemaSettings::draft2020_12().for_deserialize();
    settings.meta_schema = None;
    settings.inline_subschemas = true;
    settings.into_generator()
}

/// Like `get_v1_links_name`.
fn operation(route: &Route) -> String {
    let words = route.path.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    format!(
        "{}_{}",
        route.method.as_str().to_lowercase(),
        words.join("_")
    )
}

fn parameters(route: &Route) -> Vec<Value> {
    let names = route.path.split('/');
    let names = names.filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let in_path = names.map(|name| {
        json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })
    });
    let in_query = route.query.iter().map(|(name, about)| {
        json!({
            "name": name, "in": "query", "required": false, "description": about,
            "schema": { "type": "string" },
        })
    });
    in_path.chain(in_query).collect()
}
