// What the pages need beyond htmx: strict settings, copying, the theme, and keeping a followed log at its end.
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

// A followed log stays at its end unless the reader scrolled up.
document.addEventListener("htmx:sseBeforeMessage", (e) => {
  const box = e.target.closest("[data-follow]");
  if (box) box.dataset.atEnd = String(box.scrollHeight - box.scrollTop - box.clientHeight < 40);
});
document.addEventListener("htmx:sseMessage", (e) => {
  const box = e.target.closest("[data-follow]");
  if (box && box.dataset.atEnd !== "false") box.scrollTop = box.scrollHeight;
});
