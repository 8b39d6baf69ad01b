package accounts

import (
	"net/url"

	"github.com/go-chi/chi/v5"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/web/page"
)

func (s *Pages) noticesPage(v *page.Visit) error {
	f := notify.Filter{Limit: noticesPerPage}
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
	if len(list) == noticesPerPage {
		next = "/notices?" + url.Values{"after": {list[len(list)-1].ID.String()}}.Encode()
	}
	return s.Render(v, NoticesPage(v.Page("Notices", ""), s.ViewNotices(list), next))
}

// readNotice marks a notice as read and redirects to the page that showed it.
func (s *Pages) readNotice(v *page.Visit) error {
	n, err := id.Parse[id.Notice](chi.URLParam(v.R, "id"))
	if err != nil {
		return fault.New(fault.NotFound, "notice not found")
	}
	if err := s.Notices.MarkRead(v.R.Context(), v.Who.Org, n); err != nil {
		return err
	}
	return page.Back(v, page.Whence(v.R, "/notices"))
}

const noticesPerPage = 50
