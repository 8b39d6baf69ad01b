package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/publicnet"
	"github.com/musterhq/muster/internal/seal"
)

// GiveUpAfter is how long a delivery is tried. Then its webhook is disabled.
const GiveUpAfter = 3 * 24 * time.Hour

const (
	hookBatch    = 200              // deliveries of one pass
	hookTogether = 16               // webhooks that a replica sends to at the same time
	hookTimeout  = 10 * time.Second // of one attempt
	hookPass     = 4 * time.Minute  // of a pass: shorter than a claim
	firstWait    = 30 * time.Second // doubles with each attempt
	maxWait      = 6 * time.Hour
)

// Sender sends notices to webhooks. Any number of replicas may run one. A notice arrives at least once; what arrives
// twice has the same id.
type Sender struct {
	DB         *db.DB
	Box        *seal.Box
	AnyAddress bool // also sends to addresses that are not on the internet: for a development platform
	Log        *slog.Logger

	once   sync.Once
	client *http.Client
}

// Run makes one pass over the deliveries that are due and returns how many arrived.
func (s *Sender) Run(ctx context.Context) (sent int, err error) {
	s.once.Do(s.connect)
	ctx, cancel := context.WithTimeout(ctx, hookPass)
	defer cancel()
	due, err := s.DB.Q.ClaimDeliveries(ctx, hookBatch)
	if err != nil {
		return 0, fmt.Errorf("claim deliveries: %w", err)
	}
	byHook := map[id.Webhook][]dbq.ClaimDeliveriesRow{}
	for _, d := range due {
		byHook[d.WebhookID] = append(byHook[d.WebhookID], d)
	}
	var mu sync.Mutex
	var running sync.WaitGroup
	slots := make(chan struct{}, hookTogether)
	for _, list := range byHook {
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			n, failed := s.sendAll(ctx, list)
			mu.Lock()
			defer mu.Unlock()
			sent, err = sent+n, errors.Join(err, failed)
		})
	}
	running.Wait()
	return sent, err
}

// sendAll sends deliveries to one webhook in the order in which they were written. After one that fails, the others
// wait, so that an address that is down costs one attempt a pass.
func (s *Sender) sendAll(ctx context.Context, list []dbq.ClaimDeliveriesRow) (sent int, err error) {
	for i, d := range list {
		status, failed := s.send(ctx, d)
		if failed == nil {
			if err := s.DB.Q.DeliverySucceeded(ctx, int32(status), d.WebhookID, d.NoticeID); err != nil {
				return sent, fmt.Errorf("record delivery: %w", err)
			}
			sent++
			continue
		}
		if ctx.Err() != nil {
			return sent, nil // the pass was too long: the claim ends in minutes
		}
		if d.Old {
			return sent, s.giveUp(ctx, d, failed)
		}
		wait := retryAfter(int(d.Attempts))
		if err := s.DB.Q.DeliveryFailed(ctx, dbq.DeliveryFailedParams{Status: int32(status), Error: failed.Error(),
			WaitS: wait.Seconds(), WebhookID: d.WebhookID, NoticeID: d.NoticeID}); err != nil {
			return sent, fmt.Errorf("record delivery: %w", err)
		}
		for _, later := range list[i+1:] {
			if err := s.DB.Q.PostponeDelivery(ctx, wait.Seconds(), later.WebhookID, later.NoticeID); err != nil {
				return sent, fmt.Errorf("postpone delivery: %w", err)
			}
		}
		return sent, nil
	}
	return sent, nil
}

// retryAfter is the wait after an attempt, before which there were so many: 30 s, then twice as long each time, at most
// six hours, up to a tenth more so that addresses that failed together are not tried together.
func retryAfter(before int) time.Duration {
	wait := min(maxWait, firstWait<<min(before, 12))
	return wait + rand.N(wait/10)
}

// giveUp disables a webhook that has failed for GiveUpAfter and notifies its organisation.
func (s *Sender) giveUp(ctx context.Context, d dbq.ClaimDeliveriesRow, cause error) error {
	s.Log.WarnContext(ctx, "a webhook is disabled", "webhook", d.WebhookID, "err", cause)
	return s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		w, err := tx.Q.DisableWebhook(ctx, cause.Error(), d.WebhookID)
		switch {
		case db.NoRows(err): // another pass did it
			return tx.Q.GiveUpDeliveries(ctx, d.WebhookID)
		case err != nil:
			return fmt.Errorf("disable webhook: %w", err)
		}
		if err := tx.Q.GiveUpDeliveries(ctx, d.WebhookID); err != nil {
			return fmt.Errorf("give up deliveries: %w", err)
		}
		_, err = Add(ctx, tx, Notice{
			Org:      w.OrgID,
			Key:      "webhook_disabled:" + d.WebhookID.String() + ":" + d.NoticeID.String(),
			Severity: Warn,
			Title:    "A webhook is disabled",
			Body: fmt.Sprintf("%s has not accepted a notice for three days: %s. Nothing is sent to it until you enable it "+
				"again: muster webhook enable %s. Then retry what it has missed.", w.URL, cause, d.WebhookID),
			Object: d.WebhookID.String(),
		})
		return err
	})
}

// send makes one attempt and returns the status of the answer, 0 if there was none.
func (s *Sender) send(ctx context.Context, d dbq.ClaimDeliveriesRow) (status int, err error) {
	secret, err := s.Box.Open(d.Secret, webhookBelongs(d.WebhookID))
	if err != nil {
		return 0, errors.New("the webhook's secret cannot be read: delete the webhook and create it again")
	}
	body, err := json.Marshal(client.WebhookEvent{
		ID: d.NoticeID, Type: client.NoticeCreated, CreatedAt: d.CreatedAt.UTC(),
		Data: client.WebhookNotice{
			ID: d.NoticeID, OrgID: d.OrgID, Severity: d.Severity, Title: d.Title, Body: d.Body, Object: d.Object,
		},
	})
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, hookTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL, bytes.NewReader(body))
	if err != nil {
		return 0, errors.New("the address is not valid")
	}
	now := time.Now()
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "Muster-Webhooks/1")
	r.Header.Set("Muster-Webhook-Id", d.WebhookID.String())
	r.Header.Set("Muster-Attempt", strconv.Itoa(int(d.Attempts)+1))
	r.Header.Set(client.SignatureHeader, client.SignWebhook(string(secret), now, body))
	a, err := s.client.Do(r)
	if err != nil {
		return 0, plainError(err)
	}
	defer a.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(a.Body, 16<<10)) // an answer is never shown: it may come from elsewhere
	if a.StatusCode < 200 || a.StatusCode > 299 {
		// Only the number: the receiver chooses the rest of the status line, and any bytes for it.
		return a.StatusCode, fmt.Errorf("the answer was %s",
			strings.TrimSpace(fmt.Sprintf("%d %s", a.StatusCode, http.StatusText(a.StatusCode))))
	}
	return a.StatusCode, nil
}

// plainError says why there was no answer, without what the platform's network looks like from inside.
func plainError(err error) error {
	var timeout net.Error
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, publicnet.ErrOutside):
		return publicnet.ErrOutside
	case errors.As(err, &name):
		return errors.New("the host's name cannot be resolved")
	case errors.As(err, &certificate):
		return errors.New("the certificate is not valid for this address")
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("there was no answer within %s", hookTimeout)
	}
	return errors.New("the address cannot be reached")
}

// connect makes the client: without proxies, redirects and cookies.
func (s *Sender) connect() {
	dialer := &net.Dialer{Timeout: hookTimeout}
	if !s.AnyAddress {
		dialer.Control = publicnet.Control
	}
	s.client = &http.Client{
		Transport: &http.Transport{
			Proxy:                  func(*http.Request) (*url.URL, error) { return nil, nil },
			DialContext:            dialer.DialContext,
			TLSHandshakeTimeout:    hookTimeout,
			MaxResponseHeaderBytes: 16 << 10,
			MaxIdleConnsPerHost:    1,
			IdleConnTimeout:        time.Minute,
			ForceAttemptHTTP2:      true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
