package demojob

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"strings"
	"time"
)

// serve shows a page about this rank on a port of all its addresses, until ctx ends.
func serve(ctx context.Context, port int, env []string, stdout, stderr io.Writer) int {
	s := &http.Server{
		Addr: fmt.Sprintf(":%d", port), ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprint(w, page(env))
		}),
	}
	stopped := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stopped()
	fmt.Fprintf(stdout, "serving a page on port %d\n", port)
	if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		fmt.Fprintln(stderr, "serve:", err)
		return 1
	}
	return 0
}

// page describes the rank. It shows no variable but those that the platform sets and that are no secret.
func page(env []string) string {
	var rows strings.Builder
	for _, k := range []string{"NODE_RANK", "NNODES", "MASTER_ADDR", "NPROC_PER_NODE"} {
		fmt.Fprintf(&rows, "<tr><th>%s</th><td>%s</td></tr>", k, html.EscapeString(valueOf(env, k)))
	}
	return `<!doctype html><html lang="en"><meta charset="utf-8"><title>Muster demo job</title>` +
		`<h1>It works</h1><p>This page comes from the demo job in your cluster. On a platform with real GPUs, ` +
		`JupyterLab would be here.</p><table>` + rows.String() + `</table></html>` + "\n"
}
