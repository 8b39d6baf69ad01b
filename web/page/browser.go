package page

import (
	"github.com/mileusna/useragent"

	"github.com/musterhq/muster/internal/text"
)

// BrowserName names the program of a User-Agent header, and its system if the header gives it, such as "Firefox on
// Linux". A header that is not known is returned itself, at most 80 characters of it.
func BrowserName(header string) string {
	agent := useragent.Parse(header)
	switch {
	case agent.IsUnknown() && header == "":
		return "Unknown browser"
	case agent.IsUnknown():
		return text.Ellipsis(header, 80)
	case agent.OS == "":
		return agent.Name
	}
	return agent.Name + " on " + agent.OS
}
