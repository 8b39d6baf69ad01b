package hostlink

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/text"
)

// handleTimeout limits the time for one message. Agents repeat requests that get no response.
const handleTimeout = 30 * time.Second

// pooled returns a message handler that runs handle concurrently, at most once per slot. While all slots are in use,
// the subscription waits.
func (l *Link) pooled(slots chan struct{}, handle func(context.Context, *nats.Msg)) nats.MsgHandler {
	return func(m *nats.Msg) {
		select {
		case slots <- struct{}{}:
		case <-l.ctx.Done():
			return
		}
		l.mu.Lock()
		if l.stopping {
			l.mu.Unlock()
			return
		}
		l.handling.Add(1)
		l.mu.Unlock()
		go func() {
			defer func() { <-slots; l.handling.Done() }()
			ctx, cancel := context.WithTimeout(l.ctx, handleTimeout)
			defer cancel()
			handle(ctx, m)
		}()
	}
}

// onHost calls a handler with the host to which the message's subject belongs; NATS allows only that host to publish
// there. onHost rejects messages that our agent would not send.
func (l *Link) onHost(handle func(context.Context, id.Host, *nats.Msg)) func(context.Context, *nats.Msg) {
	return func(ctx context.Context, m *nats.Msg) {
		parts := strings.Split(m.Subject, ".")
		if len(parts) != 3 {
			return
		}
		h, err := id.Parse[id.Host](parts[1])
		if err != nil {
			return
		}
		wait, answer := l.limits.take(h, parts[2])
		switch {
		case wait > 0:
			// The message is not decoded, so each message of a flood costs only this check.
			if answer && ownInbox(h, m.Reply) {
				l.answer(h, m, (&agentapi.TooMany{Wait: wait}).Ack())
			}
			l.log.Debug("a host sends too often", "host", h, "what", parts[2], "wait", wait)
		case m.Reply != "" && !ownInbox(h, m.Reply):
			l.log.Warn("a host wants its answer published elsewhere: refused", "host", h, "reply", text.Clip(m.Reply, 200))
			l.alert(ctx, h, host.Alert{
				Action: "host.foreign_reply",
				Title:  "A host asked for answers in another host's name",
				Body:   "Its agent is not ours or was tampered with. Retire the host unless you know why.",
			})
		default:
			handle(ctx, h, m)
		}
	}
}

// ownInbox reports whether a reply subject is a single literal subject under the host's inbox.
func ownInbox(h id.Host, reply string) bool {
	rest, ok := strings.CutPrefix(reply, agentapi.InboxPrefix(h.String())+".")
	return ok && len(rest) < 200 && !strings.ContainsAny(rest, "*> \t\r\n") && !strings.Contains("."+rest+".", "..")
}

// answer responds to m with v. Only handlers of onHost may call it, because onHost has checked the reply subject.
func (l *Link) answer(h id.Host, m *nats.Msg, v any) {
	if m.Reply == "" {
		return
	}
	data, err := json.Marshal(v)
	if err == nil && len(data) > maxPayload {
		l.log.Error("an answer to a host is too big to send", "host", h, "bytes", len(data))
		return
	}
	if err == nil {
		err = l.hosts.Publish(m.Reply, data)
	}
	if err != nil {
		l.log.Warn("answer to a host failed", "host", h, "err", err)
	}
}

// read decodes a host's message. It rejects NUL characters, which PostgreSQL cannot store in text.
func read(m *nats.Msg, v any) error {
	if err := json.Unmarshal(m.Data, v); err != nil {
		return errMalformed
	}
	if strings.Contains(string(m.Data), `\u0000`) {
		return errMalformed
	}
	return nil
}
