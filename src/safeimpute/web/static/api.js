// Talking to the server: JSON both ways; an error carries the server's own words.

async function answer(response) {
  if (response.ok) return response.json();
  const body = await response.json().catch(() => ({}));
  const detail = typeof body.detail === "string" ? body.detail : null;
  throw new Error(detail ?? `The server refused this (${response.status}). Is it still the one you opened?`);
}

export const getJson = async (path) => answer(await fetch(path));

export const postJson = async (path, body) => answer(await fetch(path, {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify(body),
}));
