package clusters

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/coder/websocket"
	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/dialback"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
)

const (
	maxTyped     = 64 << 10 // bytes of a message from the browser, which sends a long paste in several
	terminalPing = 30 * time.Second
	// terminalPong is how long a browser may take to answer. It cannot while the shell does not read what was typed.
	terminalPong = 5 * time.Minute
	// terminalFirst is how long a browser may take to send its size. Until then nothing limits its connections.
	terminalFirst = 10 * time.Second
)

// terminalRank returns the cluster and the rank of a request for a terminal. The rank runs, and is the visitor's.
func (s *Pages) terminalRank(v *page.Visit) (cl id.Cluster, rank int, err error) {
	cl, err = id.Parse[id.Cluster](chi.URLParam(v.R, "id"))
	if err != nil || s.Terminal == nil {
		return cl, 0, fault.New(fault.NotFound, "terminal not found")
	}
	if text := v.R.URL.Query().Get("node"); text != "" {
		if rank, err = strconv.Atoi(text); err != nil {
			return cl, 0, fault.InvalidField("node", "has to be a rank")
		}
	}
	_, err = s.Clusters.Ingress.Shell(v.R.Context(), v.Who.Org, cl, rank)
	return cl, rank, err
}

// terminalPage shows a terminal on a rank. Only this page allows inline styles: the terminal sizes its cells with them.
func (s *Pages) terminalPage(v *page.Visit) error {
	cl, rank, err := s.terminalRank(v)
	if err != nil {
		return err
	}
	c, err := s.Clusters.Views.Get(v.R.Context(), v.Who.Org, cl)
	if err != nil {
		return err
	}
	page.AllowInlineStyles(v.W)
	return s.Render(v, TerminalPage(v.Page("Terminal of "+c.Name, "clusters"), Terminal{
		ID:     c.ID.String(),
		Name:   c.Name,
		Rank:   rank,
		Ranks:  len(c.Nodes),
		Host:   hostOf(c, rank),
		Stream: fmt.Sprintf("/clusters/%s/terminal/stream?node=%d", c.ID, rank),
	}))
}

func hostOf(c cluster.Cluster, rank int) string {
	for _, n := range c.Nodes {
		if n.Rank == rank {
			return n.HostName
		}
	}
	return ""
}

// fromTerminal is a text message from the browser: the size of its terminal. The first message is one.
type fromTerminal struct {
	Cols int `json:"cols"`
	Rows int `json:"rows"`
}

// toTerminal is the last message to the browser: how the shell ended.
type toTerminal struct {
	Code  int    `json:"code"`
	Error string `json:"error,omitempty"`
}

// terminalStream is a login shell in a WebSocket. Binary messages are what is typed and what is shown, text messages
// are fromTerminal and toTerminal. A page of another origin is refused: browsers send the cookie with every WebSocket.
func (s *Pages) terminalStream(v *page.Visit) error {
	cl, rank, err := s.terminalRank(v)
	if err != nil {
		return err
	}
	own, err := url.Parse(s.PublicURL)
	if err != nil {
		return err
	}
	ws, err := websocket.Accept(v.W, v.R, &websocket.AcceptOptions{
		CompressionMode: websocket.CompressionDisabled,
		OriginPatterns:  []string{own.Host},
	})
	if err != nil {
		return nil // Accept has answered
	}
	defer ws.CloseNow()
	ws.SetReadLimit(maxTyped)
	// The connection was taken from the server, which ends the request's context now and then. The shell's owner watches
	// the session itself.
	ctx, leave := context.WithCancel(context.WithoutCancel(v.R.Context()))
	defer leave()
	code, err := s.runTerminal(ctx, leave, ws, func(t dialback.Terminal) (int, error) {
		return s.Terminal(ctx, v.Who, cl, rank, t)
	})
	last := toTerminal{Code: code}
	if err != nil {
		if _, gone := s.Clusters.Ingress.Shell(ctx, v.Who.Org, cl, rank); fault.From(gone) != nil {
			err = gone // says more than that the connection was lost
		}
		last.Error = "The connection to the node was lost."
		if f := fault.From(err); f != nil {
			last.Error = f.Message
		}
		s.Log.DebugContext(ctx, "a terminal ended", "cluster", cl, "rank", rank, "err", err)
	}
	if text, err := json.Marshal(last); err == nil {
		_ = ws.Write(ctx, websocket.MessageText, text)
	}
	_ = ws.Close(websocket.StatusNormalClosure, "")
	return nil
}

// runTerminal connects the browser's end of a WebSocket to a shell until the shell ends or the browser leaves.
func (s *Pages) runTerminal(ctx context.Context, leave func(), ws *websocket.Conn,
	run func(dialback.Terminal) (int, error)) (code int, err error) {
	var size fromTerminal
	first, cancel := context.WithTimeout(ctx, terminalFirst)
	defer cancel()
	kind, text, err := ws.Read(first)
	if err != nil {
		return 0, err
	}
	if kind != websocket.MessageText || json.Unmarshal(text, &size) != nil {
		return 0, fault.New(fault.Invalid, "the first message has to be the terminal's size")
	}
	typed, in := io.Pipe()
	defer typed.Close()
	sizes := make(chan dialback.Size)
	go func() {
		defer leave()
		in.CloseWithError(readTyped(ctx, ws, in, sizes))
	}()
	go keepAlive(ctx, leave, ws)
	return run(dialback.Terminal{
		In:    typed,
		Out:   shown{ctx, ws},
		Size:  dialback.Size{Cols: size.Cols, Rows: size.Rows},
		Sizes: sizes,
		Type:  "xterm-256color",
	})
}

// keepAlive pings the browser, because proxies close connections on which nothing moves. It calls leave if the browser
// does not answer.
func keepAlive(ctx context.Context, leave func(), ws *websocket.Conn) {
	tick := time.NewTicker(terminalPing)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		answered, cancel := context.WithTimeout(ctx, terminalPong)
		err := ws.Ping(answered)
		cancel()
		if err != nil {
			leave()
			return
		}
	}
}

// readTyped passes on what the browser sends until it leaves.
func readTyped(ctx context.Context, ws *websocket.Conn, in io.Writer, sizes chan<- dialback.Size) error {
	for {
		kind, data, err := ws.Read(ctx)
		if err != nil {
			return err
		}
		if kind == websocket.MessageBinary {
			if _, err := in.Write(data); err != nil {
				return err
			}
			continue
		}
		var s fromTerminal
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		select {
		case sizes <- dialback.Size{Cols: s.Cols, Rows: s.Rows}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// shown writes a shell's output to the browser.
type shown struct {
	ctx context.Context
	ws  *websocket.Conn
}

func (s shown) Write(b []byte) (int, error) {
	if err := s.ws.Write(s.ctx, websocket.MessageBinary, b); err != nil {
		return 0, err
	}
	return len(b), nil
}
