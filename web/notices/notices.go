package notices

import (
	"net/url"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/web/page"
)

const perPage = 50

func (s *Pages) list(v *page.Visit) error {
	f := notify.Filter{Limit: perPage}
	if a := v.R.FormValue("after"); a != "" {
		after, err := id.Parse[id.Notice](a)
		if err != nil {
			return fault.New(fault.NotFound, "page not found")
		}
		f.After = after
	}
	list, err := s.Notices.List(v.R.Context(), v.Who.Org, f)
	if err != nil {
		return err
	}
	next := ""
	if len(list) == perPage {
		next = "/notices?" + url.Values{"after": {list[len(list)-1].ID.String()}}.Encode()
	}
	p, newest := v.Page("Notices", ""), ""
	if len(list) > 0 && p.Notices > 0 {
		newest = list[0].ID.String()
	}
	return s.Render(v, Page(p, s.ViewNotices(list), newest, next))
}

// markAllRead marks the newest notice that the page showed and all older ones as read.
func (s *Pages) markAllRead(v *page.Visit) error {
	newest, err := id.Parse[id.Notice](v.R.FormValue("newest"))
	if err != nil {
		return fault.New(fault.NotFound, "notice not found")
	}
	if err := s.Notices.MarkAllRead(v.R.Context(), v.Who.Org, newest); err != nil {
		return err
	}
	return page.Back(v, "/notices")
}

// markRead marks a notice as read and redirects to the page that showed it.
func (s *Pages) markRead(v *page.Visit) error {
	n, err := id.Parse[id.Notice](chi.URLParam(v.R, "id"))
	if err != nil {
		return fault.New(fault.NotFound, "notice not found")
	}
	if err := s.Notices.MarkRead(v.R.Context(), v.Who.Org, n); err != nil {
		return err
	}
	return page.Back(v, page.Whence(v.R, "/notices"))
}
