// A terminal on a rank: xterm.js over a WebSocket. Binary messages are what is typed and shown; text messages are the
// terminal's size to the server, and how the shell ended from it.
(() => {
  const box = document.getElementById("terminal"), state = document.getElementById("terminal-state");
  const again = document.getElementById("terminal-again");
  if (!box) return;
  const style = getComputedStyle(document.documentElement);
  const term = new Terminal({
    cursorBlink: !matchMedia("(prefers-reduced-motion: reduce)").matches,
    fontFamily: style.getPropertyValue("--mono"),
    fontSize: 13,
    scrollback: 10000,
    theme: { background: "#14181c", foreground: "#e8e6df", cursor: "#5cc8dc", selectionBackground: "#3a5560" },
  });
  const fit = new FitAddon.FitAddon();
  term.loadAddon(fit);
  term.open(box);
  fit.fit();
  const encode = new TextEncoder();
  const chunk = 16 << 10; // bytes of a message; the server refuses more than 64 KiB
  let ws = null;
  const send = (data) => {
    if (ws?.readyState === WebSocket.OPEN) ws.send(data);
  };
  const size = () => send(JSON.stringify({ cols: term.cols, rows: term.rows }));
  const type = (bytes) => {
    for (let i = 0; i < bytes.length; i += chunk) send(bytes.subarray(i, i + chunk));
  };
  const connect = () => {
    let ended = "The connection was lost.";
    state.textContent = "Connecting…";
    again.hidden = true;
    ws = new WebSocket(new URL(box.dataset.stream, location.href).href.replace(/^http/, "ws"));
    ws.binaryType = "arraybuffer";
    ws.onopen = () => {
      size();
      state.textContent = "Connected";
      term.focus();
    };
    ws.onmessage = (e) => {
      if (typeof e.data !== "string") {
        term.write(new Uint8Array(e.data));
        return;
      }
      const last = JSON.parse(e.data);
      ended = last.error || `The shell ended with exit code ${last.code}.`;
    };
    ws.onclose = () => {
      state.textContent = ended;
      term.write(`\r\n\x1b[2m${ended}\x1b[0m\r\n`);
      again.hidden = false;
      again.focus();
    };
  };
  term.onData((text) => type(encode.encode(text)));
  term.onBinary((text) => type(Uint8Array.from(text, (c) => c.charCodeAt(0))));
  term.onResize(size);
  term.attachCustomKeyEventHandler((e) => {
    if (e.type === "keydown" && e.ctrlKey && e.shiftKey && e.code === "KeyC" && term.hasSelection()) {
      navigator.clipboard.writeText(term.getSelection());
      e.preventDefault();
      return false;
    }
    if (e.key === "F6") { // moves on, as in desktop programs: Tab belongs to the shell
      if (e.type === "keydown") document.querySelector("footer a, footer button")?.focus();
      e.preventDefault();
      return false;
    }
    return !(e.ctrlKey && e.shiftKey && e.code === "KeyV"); // the browser pastes
  });
  new ResizeObserver(() => fit.fit()).observe(box);
  again.addEventListener("click", connect);
  connect();
})();
