package bus

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// watchEvery is how often a watched host is notified; a host stops sending every second one minute after the last
// notification.
const watchEvery = 40 * time.Second

// WatchTelemetry reports a host's samples as they arrive, every second, until ctx ends, and then closes the channel. A
// slow receiver misses batches. Samples are as the host sent them: the caller selects the GPUs that it knows.
//
// It subscribes in addition to the replica that stores the history, so that nothing is sent twice while no one watches.
func (b *Bus) WatchTelemetry(ctx context.Context, host id.Host) <-chan agentapi.Telemetry {
	out := make(chan agentapi.Telemetry, 4)
	if b.off() {
		context.AfterFunc(ctx, func() { close(out) })
		return out
	}
	in := make(chan *nats.Msg, 16)
	sub, err := b.hosts.ChanSubscribe(agentapi.SubjectTelemetry(host.String()), in)
	go func() {
		defer close(out)
		if err != nil {
			return
		}
		defer func() { _ = sub.Unsubscribe() }()
		again := time.NewTicker(watchEvery)
		defer again.Stop()
		b.WatchHost(host)
		for {
			select {
			case <-ctx.Done():
				return
			case <-again.C:
				b.WatchHost(host)
			case m := <-in:
				var t agentapi.Telemetry
				if json.Unmarshal(m.Data, &t) != nil {
					continue
				}
				select {
				case out <- t:
				default:
				}
			}
		}
	}()
	return out
}
