package clusters

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/a-h/templ"
	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// events is a stream of server-sent events (WHATWG HTML, 9.2) to one page.
type events struct {
	w    http.ResponseWriter
	c    *http.ResponseController
	last map[string]string // the page's current content by part
}

func openEvents(w http.ResponseWriter) *events {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	return &events{w, http.NewResponseController(w), map[string]string{}}
}

// dataLines puts each line of an event's data on its own line of the stream, where CR LF, LF and CR all end a line.
var dataLines = strings.NewReplacer("\r\n", "\ndata: ", "\n", "\ndata: ", "\r", "\ndata: ")

// send writes one event; data may have many lines.
func (e *events) send(name, data string) error { return e.sendAt("", name, data) }

// sendAt is send with a position, which the browser sends when it reconnects.
func (e *events) sendAt(position, name, data string) error {
	_ = e.c.SetWriteDeadline(time.Now().Add(10 * time.Second)) // a page that does not read must not block the server
	if position != "" {
		position = "id: " + position + "\n"
	}
	if _, err := fmt.Fprintf(e.w, "%sevent: %s\ndata: %s\n\n", position, name, dataLines.Replace(data)); err != nil {
		return err
	}
	return e.c.Flush()
}

// part sends a rendered part of the page if it differs from what the page shows.
func (e *events) part(ctx context.Context, name string, c templ.Component) error {
	var b bytes.Buffer
	if err := c.Render(ctx, &b); err != nil {
		return err
	}
	if e.last[name] == b.String() {
		return nil
	}
	e.last[name] = b.String()
	return e.send(name, b.String())
}

// liveBeat is how often a live page gets a sign of life: without one it says that it is not live.
const liveBeat = 5 * time.Second

// clusterLive keeps a cluster's page up to date: at once when the bus reports a change, and every second while the
// meter runs, because money is shown as it accrues.
func (s *Pages) clusterLive(v *page.Visit) error {
	cl, err := id.Parse[id.Cluster](chi.URLParam(v.R, "id"))
	if err != nil {
		return fault.New(fault.NotFound, "cluster not found")
	}
	if _, err := s.Clusters.Views.Get(v.R.Context(), v.Who.Org, cl); err != nil {
		return err
	}
	ctx, leave, err := s.openStream(v)
	if err != nil {
		return err
	}
	defer leave()
	changes := s.Bus.Watch(ctx, bus.TopicCluster(cl))
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	beat := time.NewTicker(liveBeat)
	defer beat.Stop()
	e, sampled := openEvents(v.W), new(readings)
	gpus := hostsWatch{bus: s.Bus, samples: make(chan agentapi.Telemetry)}
	for {
		c, err := s.viewCluster(ctx, v.Who, cl, choiceOf(v), sampled)
		if err != nil {
			return s.dropped(v, err)
		}
		gpus.watch(ctx, sampled)
		if err := s.sendParts(ctx, e, v, c); err != nil {
			return nil // the page is gone
		}
		if c.Ended {
			_ = e.send("ended", "")
			return nil
		}
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return nil
			case t := <-gpus.samples:
				sampled.take(t)
			case <-changes:
				waiting = false
			case <-tick.C:
				waiting = false
			case <-beat.C:
				if err := e.send("beat", ""); err != nil {
					return nil
				}
			}
		}
	}
}

// sendParts sends the parts of a cluster's page that have changed.
func (s *Pages) sendParts(ctx context.Context, e *events, v *page.Visit, c Cluster) error {
	for name, part := range map[string]templ.Component{
		"head":       ClusterHead(c),
		"strip":      ClusterStripView(c.Strip),
		"phases":     ClusterPhases(c),
		"nodes":      ClusterNodes(c),
		"charts":     ChartsView(c.Charts),
		"connect":    ClusterConnect(c),
		"actions":    ClusterActions(c),
		"bandwidth":  ClusterBandwidth(c),
		"timeline":   ClusterTimeline(c),
		"notbilled":  ClusterNotBilled(c),
		"mounts":     ClusterMounts(c),
		"snapshots":  ClusterSnapshots(c),
		"wallet-bar": view.WalletBar(s.WalletOf(ctx, v.Who)),
	} {
		if err := e.part(ctx, name, part); err != nil {
			return err
		}
	}
	return nil
}

// hostsWatch subscribes to the telemetry of the hosts of one cluster while a page is open.
type hostsWatch struct {
	bus     *bus.Bus
	hosts   map[id.Host]bool
	samples chan agentapi.Telemetry
}

// watch subscribes to the hosts that are new.
func (w *hostsWatch) watch(ctx context.Context, sampled *readings) {
	if w.hosts == nil {
		w.hosts = map[id.Host]bool{}
	}
	for _, g := range sampled.gpus {
		if w.hosts[g.Host] {
			continue
		}
		w.hosts[g.Host] = true
		go func() {
			for t := range w.bus.WatchTelemetry(ctx, g.Host) {
				select {
				case w.samples <- t:
				case <-ctx.Done():
				}
			}
		}()
	}
}

// dropped ends a stream after an error: it is too late for an error page, and the browser reconnects by itself.
func (s *Pages) dropped(v *page.Visit, err error) error {
	if v.R.Context().Err() == nil {
		s.Log.WarnContext(v.R.Context(), "live page dropped", "path", v.R.URL.Path, "err", err)
	}
	return nil
}
