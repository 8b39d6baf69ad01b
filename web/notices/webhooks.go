package notices

import (
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

const webhooksPage = "/notices/webhooks"

func (s *Pages) webhooks(v *page.Visit) error { return s.showWebhooks(v, Webhooks{}) }

// showWebhooks renders the list of webhooks; w carries what the form left: an error, or the secret of a new webhook.
func (s *Pages) showWebhooks(v *page.Visit, w Webhooks) error {
	all, err := s.Webhooks.List(v.R.Context(), v.Who.Org)
	if err != nil {
		return err
	}
	for _, h := range all {
		w.Rows = append(w.Rows, s.webhookRow(h))
	}
	w.Manage, w.Once = manages(v), page.NewOnce()
	return s.Render(v, WebhooksPage(v.Page("Webhooks", ""), w))
}

// manages reports whether the visitor may change webhooks.
func manages(v *page.Visit) bool { return v.Who.CanAny(account.WriteMembers...) }

func (s *Pages) webhookRow(h notify.Webhook) WebhookRow {
	r := WebhookRow{ID: h.ID.String(), URL: h.URL, Since: view.Clock(h.CreatedAt, s.Now()), Disabled: h.DisabledAt != nil,
		Why: h.DisabledWhy}
	if r.Disabled {
		r.Stopped = view.Clock(*h.DisabledAt, s.Now())
	}
	return r
}

func (s *Pages) createWebhook(v *page.Visit) error {
	w := Webhooks{URL: strings.TrimSpace(v.R.FormValue("url"))}
	made, _, err := s.Webhooks.Create(v.R.Context(), v.Who, w.URL, v.Once("url"))
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			w.Errors = errs
			return s.showWebhooks(v, w)
		})
	}
	// Do not redirect: the secret is shown in this response only and must not be in a URL.
	return s.showWebhooks(v, Webhooks{Secret: made.Secret})
}

func (s *Pages) webhook(v *page.Visit) error {
	hook, err := webhookOf(v)
	if err != nil {
		return err
	}
	var after id.Notice
	if a := v.R.FormValue("after"); a != "" {
		if after, err = id.Parse[id.Notice](a); err != nil {
			return fault.New(fault.NotFound, "page not found")
		}
	}
	h, err := s.Webhooks.Get(v.R.Context(), v.Who.Org, hook)
	if err != nil {
		return err
	}
	sent, err := s.Webhooks.Deliveries(v.R.Context(), v.Who.Org, hook, after, perPage)
	if err != nil {
		return err
	}
	w := Webhook{WebhookRow: s.webhookRow(h), Manage: manages(v)}
	for _, d := range sent {
		w.Deliveries = append(w.Deliveries, deliveryRow(d, s.Now()))
	}
	if len(sent) == perPage {
		w.Older = webhooksPage + "/" + w.ID + "?after=" + sent[len(sent)-1].Notice.String()
	}
	return s.Render(v, WebhookPage(v.Page("Webhook", ""), w))
}

var deliveryStates = map[notify.DeliveryState]view.State{
	notify.DeliveryPending:   {Word: "Waiting", Icon: "pending", Tone: "live"},
	notify.DeliveryDelivered: {Word: "Delivered", Icon: "check", Tone: "ok"},
	notify.DeliveryFailed:    {Word: "Given up", Icon: "failed", Tone: "bad"},
}

func deliveryRow(d notify.Delivery, now time.Time) DeliveryRow {
	r := DeliveryRow{Notice: d.Notice.String(), Title: d.Title, State: deliveryStates[d.State], Attempts: d.Attempts,
		Created: view.Clock(d.CreatedAt, now), Error: d.Error}
	if d.Status != 0 {
		r.Answer = strings.TrimSpace(view.Itoa(d.Status) + " " + http.StatusText(d.Status))
	}
	switch {
	case d.DeliveredAt != nil:
		r.When = view.Clock(*d.DeliveredAt, now)
	case d.NextAt != nil && d.Attempts > 0:
		r.When = "next try at " + view.Clock(*d.NextAt, now)
	}
	return r
}

func (s *Pages) enableWebhook(v *page.Visit) error {
	hook, err := webhookOf(v)
	if err != nil {
		return err
	}
	if _, _, err := s.Webhooks.Enable(v.R.Context(), v.Who, hook, v.Once()); err != nil {
		return err
	}
	return page.Back(v, webhooksPage+"/"+hook.String())
}

func (s *Pages) deleteWebhook(v *page.Visit) error {
	hook, err := webhookOf(v)
	if err != nil {
		return err
	}
	if err := s.Webhooks.Delete(v.R.Context(), v.Who, hook); err != nil {
		return err
	}
	return page.Back(v, webhooksPage)
}

func (s *Pages) retryDelivery(v *page.Visit) error {
	hook, err := webhookOf(v)
	if err != nil {
		return err
	}
	n, err := id.Parse[id.Notice](chi.URLParam(v.R, "notice"))
	if err != nil {
		return fault.New(fault.NotFound, "delivery not found")
	}
	if _, _, err := s.Webhooks.Retry(v.R.Context(), v.Who, hook, n, v.Once()); err != nil {
		return err
	}
	return page.Back(v, webhooksPage+"/"+hook.String())
}

func webhookOf(v *page.Visit) (id.Webhook, error) {
	hook, err := id.Parse[id.Webhook](chi.URLParam(v.R, "id"))
	if err != nil {
		return id.Webhook{}, fault.New(fault.NotFound, "webhook not found")
	}
	return hook, nil
}
