// The page to try the calls: a form for each operation of the OpenAPI document. All text is put in as text.
'use strict';

try {
  const theme = localStorage.getItem('pinlater.theme'); // which the dashboard's switch writes
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
} catch {
  // storage is closed to pages: as the system says
}

// The address of the site, without a / at its end: it may be below a path of a proxy.
const site = document.currentScript.src.replace(/\/docs\/api\/docs\.js$/, '');

let api;

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// A part of the document; what stands beside a reference counts too.
function resolved(schema) {
  if (schema.$ref) return api.components.schemas[schema.$ref.split('/').pop()];
  return schema.allOf ? { ...resolved(schema.allOf[0]), ...schema } : schema;
}

// A value with all that a request has to have.
function example(schema) {
  schema = resolved(schema);
  if ('default' in schema) return schema.default;
  if (schema.enum) return schema.enum[0];
  if (schema.anyOf) return example(schema.anyOf[0]);
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  if (type === 'object') {
    const needed = schema.required || [];
    return Object.fromEntries(needed.map((name) => [name, example(schema.properties[name])]));
  }
  if (type === 'array') return schema.items ? [example(schema.items)] : [];
  if (type === 'integer' || type === 'number') return schema.minimum ?? 0;
  return type === 'boolean' ? false : '';
}

function typeText(schema) {
  const whole = resolved(schema);
  if (whole.enum) return whole.enum.join(' | ');
  if (schema.$ref) return schema.$ref.split('/').pop();
  if (schema.anyOf) return schema.anyOf.map(typeText).join(' | ');
  if (schema.type === 'array') return `list of ${typeText(schema.items || {})}`;
  return String(schema.type || 'any value').replaceAll(',', ' | ');
}

function fieldList(schema, seen = new Set()) {
  const list = element('ul', { className: 'note' });
  for (const [name, field] of Object.entries(resolved(schema).properties || {})) {
    const needed = (resolved(schema).required || []).includes(name) ? ', needed' : '';
    const told = field.description || (field.anyOf || []).map((each) => each.description || '').join('');
    const item = element('li', {}, element('code', {}, name), ` (${typeText(field)}${needed}) ${told}`);
    for (const each of [field, field.items, ...(field.anyOf || [])]) {
      const reference = each && each.$ref;
      if (reference && !seen.has(reference)) item.append(fieldList(each, new Set([...seen, reference])));
    }
    list.append(item);
  }
  return list;
}

function input(parameter) {
  const values = resolved(parameter.schema).enum || (parameter.schema.type === 'boolean' ? ['true', 'false'] : null);
  if (!values) return element('input', { name: parameter.name, required: parameter.required || false });
  const choices = parameter.required ? values : ['', ...values];
  return element('select', { name: parameter.name }, ...choices.map((value) => element('option', { value }, value)));
}

async function headersFor(verb) {
  const headers = {};
  const token = document.getElementById('token').value.trim();
  const password = document.getElementById('password').value;
  if (token) headers.Authorization = `Bearer ${token}`;
  if (password) headers['X-Admin-Password'] = password;
  if (verb !== 'get' && !token) headers['X-CSRF-Token'] = (await (await fetch(`${site}/session`)).json()).csrf_token;
  return headers;
}

async function send(path, verb, operation, form, output) {
  const data = new FormData(form);
  const query = new URLSearchParams();
  let address = site + path;
  try {
    const headers = await headersFor(verb);
    for (const parameter of operation.parameters || []) {
      const value = String(data.get(parameter.name) ?? '');
      if (parameter.in === 'path') address = address.replace(`{${parameter.name}}`, encodeURIComponent(value));
      else if (value && parameter.in === 'header') headers[parameter.name] = value;
      else if (value) query.set(parameter.name, value);
    }
    const options = { method: verb.toUpperCase(), headers };
    if (operation.requestBody) {
      headers['Content-Type'] = 'application/json';
      options.body = data.get('body of the request');
    }
    const answer = await fetch(query.size ? `${address}?${query}` : address, options);
    const text = await answer.text();
    let shown = text;
    try {
      shown = JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      // not JSON: as it came
    }
    output.textContent = `${answer.status} ${answer.statusText}\n\n${shown}`;
  } catch (error) {
    output.textContent = String(error);
  }
}

function call(path, verb, operation) {
  const output = element('pre', { hidden: true, tabIndex: 0 });
  output.setAttribute('role', 'status');
  const form = element('form');
  for (const parameter of operation.parameters || []) {
    const label = element('label', {}, `${parameter.name}${parameter.required ? ' (needed)' : ''} `, input(parameter));
    if (parameter.description) label.append(element('span', { className: 'note' }, ` ${parameter.description}`));
    form.append(label);
  }
  if (operation.requestBody) {
    const { schema, example: given } = operation.requestBody.content['application/json'];
    const body = element('textarea', { name: 'body of the request', spellcheck: false });
    body.value = JSON.stringify(given ?? example(schema), null, 2);
    form.append(element('label', {}, 'Body', body), fieldList(schema));
  }
  form.append(element('button', {}, 'Send'));
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    output.hidden = false;
    output.textContent = '…';
    send(path, verb, operation, form, output);
  });
  const title = element('summary', {}, element('span', { className: 'verb' }, verb.toUpperCase()), element('code', {}, path));
  title.append(` ${operation.summary}`);
  return element('details', { id: operation.operationId }, title, form, output);
}

async function start() {
  api = await (await fetch(`${site}/v1/openapi.json`)).json();
  const calls = document.getElementById('calls');
  for (const { name } of api.tags) {
    calls.append(element('h2', {}, name));
    for (const [path, operations] of Object.entries(api.paths)) {
      for (const [verb, operation] of Object.entries(operations)) {
        if (operation.tags.includes(name)) calls.append(call(path, verb, operation));
      }
    }
  }
  calls.setAttribute('aria-busy', 'false');
  document.getElementById('credentials').addEventListener('submit', (event) => event.preventDefault());
  document.getElementById('token').addEventListener('change', showIdentity);
  await showIdentity();
}

async function showIdentity() {
  const answer = await fetch(`${site}/v1/access`, { headers: await headersFor('get') });
  const found = await answer.json();
  document.getElementById('identity').textContent = answer.ok ? `You are ${found.identity}.` : found.detail;
}

start();
