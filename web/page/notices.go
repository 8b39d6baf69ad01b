package page

import (
	"context"
	"strings"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/web/view"
)

const unreadShown = 99 // more are not counted

// unread are the org's unread notices, newest first. When they cannot be read the page is shown without.
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
		case n.ReadAt != nil: // what was read is no news
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

// NoticesOf are the unread notices about one object.
func (s *Site) NoticesOf(ctx context.Context, who account.Principal, object string) []view.Notice {
	var about []notify.Delivered
	for _, n := range s.unread(ctx, who) {
		if n.Object == object {
			about = append(about, n)
		}
	}
	out := s.ViewNotices(about)
	for i := range out {
		out[i].Href = "" // it is this page
	}
	return out
}

// hrefOf is the page of what a notice is about, by the prefix of its id, or "".
func hrefOf(n notify.Delivered) string {
	prefix, _, _ := strings.Cut(n.Object, "_")
	switch prefix {
	case "cl":
		return "/clusters/" + n.Object
	case "host":
		return "/hosts/" + n.Object
	case "top":
		if n.Severity == notify.Info { // it was paid
			return ReceiptURL(n.Object)
		}
		return "/billing"
	case "org":
		return "/billing"
	}
	return ""
}

// ReceiptURL is the page of a payment's receipt.
func ReceiptURL(topup string) string { return "/billing/payments/" + topup + "/receipt" }
