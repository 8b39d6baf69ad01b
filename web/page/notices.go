package page

import (
	"context"
	"strings"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/web/view"
)

const unreadShown = 99 // more are not counted

// unread returns the organisation's unread notices, newest first. If they cannot be read, the page goes without.
func (s *Site) unread(ctx context.Context, who account.Principal) []notify.Delivered {
	list, err := s.Notices.List(ctx, who.Org, notify.Filter{Unread: true, Limit: unreadShown})
	if err != nil {
		s.Log.ErrorContext(ctx, "read the notices", "org", who.Org, "err", err)
	}
	return list
}

func (s *Site) ViewNotices(list []notify.Delivered) []view.Notice {
	out := make([]view.Notice, 0, len(list))
	for _, n := range list {
		x := view.Notice{
			ID: n.ID.String(), Tone: "idle", Icon: "info", Title: n.Title, Body: n.Body, Time: view.Clock(n.At, s.Now()),
			Unread: n.ReadAt == nil, Href: hrefOf(n),
		}
		switch {
		case n.ReadAt != nil: // read notices are not highlighted
		case n.Severity == notify.Bad:
			x.Tone, x.Icon = "bad", "error"
		case n.Severity == notify.Warn:
			x.Tone, x.Icon = "warn", "warn"
		default:
			x.Tone = "live"
		}
		out = append(out, x)
	}
	return out
}

// NoticesOf returns the unread notices about one object.
func (s *Site) NoticesOf(ctx context.Context, who account.Principal, object string) []view.Notice {
	var about []notify.Delivered
	for _, n := range s.unread(ctx, who) {
		if n.Object == object {
			about = append(about, n)
		}
	}
	out := s.ViewNotices(about)
	for i := range out {
		out[i].Href = "" // the notice is shown on that page
	}
	return out
}

// hrefOf returns the page of the object of a notice, by the prefix of its id, or "".
func hrefOf(n notify.Delivered) string {
	prefix, _, _ := strings.Cut(n.Object, "_")
	switch prefix {
	case "cl":
		return "/clusters/" + n.Object
	case "host":
		return "/hosts/" + n.Object
	case "vol":
		return "/volumes/" + n.Object
	case "top":
		if n.Severity == notify.Info { // the top-up succeeded
			return ReceiptURL(n.Object)
		}
		return "/billing"
	case "org":
		return "/billing"
	case "wh":
		return "/notices/webhooks/" + n.Object
	}
	return ""
}

// ReceiptURL returns the page of a payment's receipt.
func ReceiptURL(topup string) string { return "/billing/payments/" + topup + "/receipt" }
