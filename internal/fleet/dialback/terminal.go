package dialback

import (
	"context"
	"io"

	"github.com/musterhq/muster/internal/agentapi"
)

// Size is a terminal's size in characters.
type Size struct{ Cols, Rows int }

// Terminal is the person's side of a shell: what is typed, what is shown, and the size of the window.
type Terminal struct {
	In    io.Reader // the shell's input ends where it ends
	Out   io.Writer
	Size  Size        // at the start
	Sizes <-chan Size // each later size; nil: it never changes
	Type  string      // of the terminal, for TERM
}

// RunTerminal runs a login shell on a terminal and returns its exit code. When ctx is done, the shell ends and an error
// is returned.
func (n *Node) RunTerminal(ctx context.Context, t Terminal) (code int, err error) {
	p, err := n.Exec(ctx, agentapi.ExecRequest{
		Kind: agentapi.ExecLogin,
		TTY:  true,
		Cols: t.Size.Cols,
		Rows: t.Size.Rows,
		Env:  []string{"TERM=" + t.Type},
	})
	if err != nil {
		return 0, err
	}
	defer p.Close()
	defer context.AfterFunc(ctx, func() { p.Close() })()
	ctx, ended := context.WithCancel(ctx)
	defer ended()
	go func() {
		if _, err := io.Copy(p, t.In); err == nil {
			_ = p.CloseWrite()
		}
	}()
	go func() {
		for {
			select {
			case s := <-t.Sizes:
				if p.Resize(s.Cols, s.Rows) != nil {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return p.Run(t.Out, t.Out)
}
