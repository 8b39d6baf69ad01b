package web

import (
	"net/url"

	"github.com/go-chi/chi/v5"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/web/view"
)

func (s *Web) noticesPage(v *visit) error {
	f := notify.Filter{Limit: noticesPerPage}
	if a := v.r.FormValue("after"); a != "" {
		after, err := id.Parse[id.Notice](a)
		if err != nil {
			return fault.New(fault.NotFound, "no such page")
		}
		f.After = after
	}
	list, err := s.Notices.List(v.r.Context(), v.who.Org, f)
	if err != nil {
		return err
	}
	next := ""
	if len(list) == noticesPerPage {
		next = "/notices?" + url.Values{"after": {list[len(list)-1].ID.String()}}.Encode()
	}
	return s.render(v, view.NoticesPage(v.page("Notices", ""), s.viewNotices(list), next))
}

// readNotice marks one read and goes back to where it was shown.
func (s *Web) readNotice(v *visit) error {
	n, err := id.Parse[id.Notice](chi.URLParam(v.r, "id"))
	if err != nil {
		return fault.New(fault.NotFound, "there is no such notice")
	}
	if err := s.Notices.MarkRead(v.r.Context(), v.who.Org, n); err != nil {
		return err
	}
	return back(v, whence(v.r, "/notices"))
}

const noticesPerPage = 50
