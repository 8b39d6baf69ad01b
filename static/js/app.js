// What the pages need beyond htmx: strict settings, copying, a quote's clock, and a followed log that stays at its end.
// Every page works without this file, only less lively.
"use strict";

htmx.config.allowEval = false; // the content security policy forbids it anyway
htmx.config.includeIndicatorStyles = false; // they would be an inline style
htmx.config.selfRequestsOnly = true;

// <button data-copy="#id"> copies the text of the element it names.
document.addEventListener("click", (e) => {
  const b = e.target.closest("[data-copy]");
  if (!b) return;
  const from = document.querySelector(b.dataset.copy);
  if (!from) return;
  navigator.clipboard.writeText(from.textContent.trim()).then(() => {
    const label = b.querySelector("[data-label]") || b;
    const before = label.textContent;
    label.textContent = "Copied";
    setTimeout(() => { label.textContent = before; }, 1500);
  });
});

// <div data-countdown="90" data-of="120"> counts down its [data-left] and its bar, turns ochre near the end, and asks
// the server again when the time is over: what is held is the server's to say.
for (const box of document.querySelectorAll("[data-countdown]")) {
  const end = performance.now() + 1000 * Number(box.dataset.countdown);
  const clock = setInterval(() => {
    const left = Math.max(0, (end - performance.now()) / 1000);
    const whole = Math.ceil(left);
    box.querySelector("[data-left]").textContent = `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
    box.querySelector(".fill").setAttribute("width", (100 * left / Number(box.dataset.of)).toFixed(1));
    box.classList.toggle("expiring", left < 20);
    if (left > 0) return;
    clearInterval(clock);
    setTimeout(() => location.reload(), 500);
  }, 250);
}

// A followed log stays at its end unless the reader scrolled up, and keeps its last lines only.
const logLines = 5000;
document.addEventListener("htmx:sseBeforeMessage", (e) => {
  const box = e.target.closest("[data-follow]");
  if (box) box.dataset.atEnd = String(box.scrollHeight - box.scrollTop - box.clientHeight < 40);
});
document.addEventListener("htmx:sseMessage", (e) => {
  const box = e.target.closest("[data-follow]");
  if (!box) return;
  while (box.children.length > logLines) box.children[1].remove(); // the first says what to expect of an empty log
  if (box.dataset.atEnd !== "false") box.scrollTop = box.scrollHeight;
});
for (const box of document.querySelectorAll("[data-follow]")) box.scrollTop = box.scrollHeight;

// A table wider than its place is scrolled with the keyboard too. Where it holds a link or a button those take the focus.
const reachable = new ResizeObserver((entries) => {
  for (const { target: box } of entries) {
    const focusable = [...box.querySelectorAll("a, button, input, select")].some((c) => c.checkVisibility());
    if (box.scrollWidth <= box.clientWidth || focusable) { box.removeAttribute("tabindex"); continue; }
    box.tabIndex = 0;
    const caption = box.querySelector("caption");
    if (caption) { box.setAttribute("role", "region"); box.setAttribute("aria-label", caption.textContent); }
  }
});
for (const box of document.querySelectorAll(".scroll")) reachable.observe(box);

// A row of tabs that does not fit begins with the present one in view.
for (const tab of document.querySelectorAll(".subnav [aria-current], .seg [aria-current]")) {
  const row = tab.parentElement;
  row.scrollLeft = tab.offsetLeft - row.offsetLeft - (row.clientWidth - tab.offsetWidth) / 2;
}

// A live part that is swapped leaves the reader where they were: the focus goes back to the same control, by its id or its
// place, and a dialog that is open in the part stays as it is; what came meanwhile is shown when it closes.
const controls = "a, button, input, select, textarea, [tabindex]";
const meanwhile = new Map(); // part → what it is to show
function focusAgain(part) {
  const at = [...part.querySelectorAll(controls)].indexOf(document.activeElement);
  if (at < 0) return () => {};
  const { id, textContent } = document.activeElement;
  return () => {
    const now = [...part.querySelectorAll(controls)];
    const same = (id && document.getElementById(id)) || (now[at]?.textContent === textContent ? now[at] : now.find((c) => c.textContent === textContent));
    if (same) same.focus({ preventScroll: true });
  };
}
document.addEventListener("htmx:sseBeforeMessage", (e) => {
  const part = e.target;
  if (part.querySelector(":popover-open, dialog[open]")) {
    meanwhile.set(part, e.detail.data);
    e.preventDefault();
    return;
  }
  meanwhile.delete(part);
  const again = focusAgain(part);
  part.addEventListener("htmx:sseMessage", again, { once: true });
});
document.addEventListener("toggle", (e) => {
  if (e.newState !== "closed") return;
  for (const [part, html] of meanwhile) {
    if (!part.contains(e.target)) continue;
    meanwhile.delete(part);
    const again = focusAgain(part);
    htmx.swap(part, html, { swapStyle: "innerHTML" });
    again();
  }
}, true);

// A page with a stream says since when it is not live: as soon as the stream breaks, or when nothing has come for longer
// than the server is ever silent. What the page shows stays.
const quiet = 20000; // ms; the server beats every 5 s
const streams = new WeakSet();
let aliveAt = Date.now(), watching = null;
function showLive(live) {
  const note = document.querySelector("[data-notlive]");
  if (!note || live === (note.textContent === "")) return;
  const since = new Date(aliveAt).toISOString().slice(11, 19);
  note.textContent = live ? "" : `Not live since ${since} UTC. Reconnecting…`;
  document.body.classList.toggle("stale", !live);
}
function alive() { aliveAt = Date.now(); showLive(true); }
document.addEventListener("htmx:sseOpen", (e) => {
  const { source } = e.detail;
  if (e.target !== document.body || streams.has(source)) return;
  streams.add(source);
  alive();
  source.addEventListener("beat", () => {
    alive();
    watching ??= setInterval(() => { if (Date.now() - aliveAt > quiet) showLive(false); }, 1000);
  });
});
document.addEventListener("htmx:sseMessage", (e) => { if (!e.target.closest("[data-follow]")) alive(); });
document.addEventListener("htmx:sseError", (e) => { if (e.target === document.body) showLive(false); });
document.addEventListener("htmx:sseClose", (e) => {
  if (e.target === document.body) clearInterval(watching); // the server has nothing more to send
});

// On a narrow screen the table of contents of a document starts closed: it would push the text below the first screen.
if (matchMedia("(max-width: 1240px)").matches) for (const toc of document.querySelectorAll("details.toc")) toc.open = false;

// <button data-print> prints the page.
document.addEventListener("click", (e) => { if (e.target.closest("[data-print]")) window.print(); });

// <a data-unfold href="/path"> in a table shows the row of /path?row=1 below its own; a second click hides it.
document.addEventListener("click", async (e) => {
  const link = e.target.closest("a[data-unfold]");
  if (!link || e.ctrlKey || e.metaKey || e.shiftKey) return;
  e.preventDefault();
  const row = link.closest("tr"), open = link.getAttribute("aria-expanded") !== "true";
  link.setAttribute("aria-expanded", String(open));
  if (row.nextElementSibling?.matches(".facts")) { row.nextElementSibling.hidden = !open; return; }
  if (row.dataset.unfolding) return; // it is on its way
  row.dataset.unfolding = "true";
  try {
    const res = await fetch(`${link.href}?row=1`);
    if (!res.ok) throw new Error(res.statusText);
    const part = document.createElement("template");
    part.innerHTML = await res.text();
    part.content.firstElementChild.hidden = link.getAttribute("aria-expanded") !== "true";
    row.after(part.content);
  } catch {
    location.href = link.href; // the page says what is wrong
  }
});

// <form data-passkey="create" data-begin="/path"> asks the server for a ceremony, has the browser make a passkey (or use
// one, with "get"), and posts what the browser returned in the field "response".
document.addEventListener("submit", async (e) => {
  const form = e.target.closest("form[data-passkey]");
  if (!form) return;
  e.preventDefault();
  const message = form.querySelector("[data-message]");
  message.textContent = "";
  try {
    const body = new URLSearchParams(new FormData(form));
    const res = await fetch(form.dataset.begin, { method: "POST", body });
    const begun = await res.json();
    if (!res.ok) { message.textContent = begun.message; return; }
    const create = form.dataset.passkey === "create", key = begun.options.publicKey;
    const made = create
      ? await navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(key) })
      : await navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(key) });
    form.elements.response.value = JSON.stringify(made.toJSON());
    const password = form.elements.password;
    if (password) password.value = ""; // it was checked, and is not needed again
    form.submit();
  } catch {
    message.textContent = "Your browser did not complete this. Try again, or use your password.";
  }
});
