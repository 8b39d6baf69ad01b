package api

import (
	"context"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/notify"
)

// noticesAPI answers the routes of notices and the webhooks that receive them.
type noticesAPI struct {
	notices  *notify.Notices
	webhooks *notify.Webhooks
}

func viewNotice(n notify.Delivered) client.Notice {
	return client.Notice{ID: n.ID, Severity: string(n.Severity), Title: n.Title, Body: n.Body, Object: n.Object,
		CreatedAt: n.At.UTC(), ReadAt: utc(n.ReadAt)}
}

func (a noticesAPI) listNotices(ctx context.Context, p account.Principal,
	in *client.NoticesQuery) (list[client.Notice], error) {
	after, err := cursor[id.Notice](in.PageOf)
	if err != nil {
		return list[client.Notice]{}, err
	}
	rows, err := a.notices.List(ctx, p.Org, notify.Filter{Unread: in.Unread, After: after, Limit: in.Limit + 1})
	return cut(rows, in.Limit, viewNotice, func(n notify.Delivered) string { return n.ID.String() }), err
}

type readNoticeInput struct {
	Keyed
	ID id.Notice `path:"id"`
}

func (a noticesAPI) readNotice(ctx context.Context, p account.Principal, in *readNoticeInput,
	once idem.Request) (client.NoticeRead, idem.Outcome, error) {
	n, out, err := a.notices.ReadOnce(ctx, p.Org, in.ID, idem.As(once, viewNoticeRead))
	return viewNoticeRead(n), out, err
}

func viewNoticeRead(n id.Notice) client.NoticeRead { return client.NoticeRead{ID: n} }

func (a noticesAPI) readNotices(ctx context.Context, p account.Principal, in *create[client.ReadNoticesRequest],
	once idem.Request) (client.NoticeRead, idem.Outcome, error) {
	n, out, err := a.notices.ReadAllOnce(ctx, p.Org, in.Body.Newest, idem.As(once, viewNoticeRead))
	return viewNoticeRead(n), out, err
}

func viewWebhook(w notify.Webhook) client.Webhook {
	return client.Webhook{ID: w.ID, URL: w.URL, Secret: w.Secret, CreatedAt: w.CreatedAt.UTC(),
		DisabledAt: utc(w.DisabledAt), DisabledWhy: w.DisabledWhy}
}

func (a noticesAPI) listWebhooks(ctx context.Context, p account.Principal, _ *struct{}) (list[client.Webhook], error) {
	all, err := a.webhooks.List(ctx, p.Org)
	return cut(all, len(all), viewWebhook, func(notify.Webhook) string { return "" }), err
}

func (a noticesAPI) createWebhook(ctx context.Context, p account.Principal, in *create[client.CreateWebhookRequest],
	once idem.Request) (client.Webhook, idem.Outcome, error) {
	w, out, err := a.webhooks.Create(ctx, p, in.Body.URL, idem.As(once, viewWebhook))
	return viewWebhook(w), out, err
}

func (a noticesAPI) deleteWebhook(ctx context.Context, p account.Principal, in *of[id.Webhook]) (nothing, error) {
	return nothing{}, a.webhooks.Delete(ctx, p, in.ID)
}

type webhookInput struct {
	Keyed
	ID id.Webhook `path:"id"`
}

func (a noticesAPI) enableWebhook(ctx context.Context, p account.Principal, in *webhookInput,
	once idem.Request) (client.Webhook, idem.Outcome, error) {
	v, out, err := a.webhooks.Enable(ctx, p, in.ID, idem.As(once, viewWebhook))
	return viewWebhook(v), out, err
}

func viewDelivery(d notify.Delivery) client.Delivery {
	return client.Delivery{NoticeID: d.Notice, Title: d.Title, State: string(d.State), Attempts: d.Attempts,
		Status: d.Status, Error: d.Error, CreatedAt: d.CreatedAt.UTC(), NextAt: utc(d.NextAt),
		DeliveredAt: utc(d.DeliveredAt)}
}

func (a noticesAPI) listDeliveries(ctx context.Context, p account.Principal, in *struct {
	client.PageOf
	ID id.Webhook `path:"id"`
}) (list[client.Delivery], error) {
	after, err := cursor[id.Notice](in.PageOf)
	if err != nil {
		return list[client.Delivery]{}, err
	}
	rows, err := a.webhooks.Deliveries(ctx, p.Org, in.ID, after, in.Limit+1)
	return cut(rows, in.Limit, viewDelivery, func(d notify.Delivery) string { return d.Notice.String() }), err
}

type retryInput struct {
	Keyed
	ID     id.Webhook `path:"id"`
	Notice id.Notice  `path:"notice" doc:"id of the notice"`
}

func (a noticesAPI) retryDelivery(ctx context.Context, p account.Principal, in *retryInput,
	once idem.Request) (client.DeliveryRetried, idem.Outcome, error) {
	view := func(r notify.Retried) client.DeliveryRetried {
		return client.DeliveryRetried{WebhookID: r.Webhook, NoticeID: r.Notice}
	}
	r, out, err := a.webhooks.Retry(ctx, p, in.ID, in.Notice, idem.As(once, view))
	return view(r), out, err
}
