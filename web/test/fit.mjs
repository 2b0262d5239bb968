// Whether a document fits a JSON Schema, as far as ours go.

/** Everything that does not fit, each with its place. */
export function complaints(schema, document) {
  const found = [];
  check(schema, schema, document, "", found);
  return found;
}

function check(root, schema, value, place, found) {
  if (schema.$ref) {
    const target = schema.$ref.slice(2).split("/").reduce((at, name) => at[name], root);
    check(root, target, value, place, found);
  }
  const choices = schema.oneOf ?? schema.anyOf;
  const fits = (choice) => {
    const inner = [];
    check(root, choice, value, place, inner);
    return inner.length === 0;
  };
  if (choices && !choices.some(fits)) found.push(`${place}: ${value} is none of the choices`);
  if (schema.enum && !schema.enum.includes(value)) found.push(`${place}: ${value} is no word of the schema`);
  if ("const" in schema && schema.const !== value) found.push(`${place}: ${value} is not ${schema.const}`);
  if (schema.type && ![schema.type].flat().some((kind) => isA(kind, value))) {
    found.push(`${place}: ${value} is not ${schema.type}`);
  }
  if (Array.isArray(value) && schema.items) {
    value.forEach((item, index) => check(root, schema.items, item, `${place}/${index}`, found));
  } else if (isA("object", value) && schema.properties) {
    checkFields(root, schema, value, place, found);
  }
}

function checkFields(root, schema, value, place, found) {
  for (const [name, field] of Object.entries(value)) {
    const known = schema.properties[name];
    if (known) check(root, known, field, `${place}/${name}`, found);
    else found.push(`${place}/${name} is not in the schema`);
  }
  for (const name of schema.required ?? []) {
    if (!(name in value)) found.push(`${place}/${name} is missing`);
  }
}

function isA(kind, value) {
  if (kind === "array") return Array.isArray(value);
  if (kind === "null") return value === null;
  if (kind === "integer") return Number.isInteger(value);
  if (kind === "object") return typeof value === "object" && value !== null && !Array.isArray(value);
  return typeof value === kind;
}
