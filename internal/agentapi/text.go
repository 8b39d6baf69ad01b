package agentapi

import (
	"reflect"
	"strings"
	"unicode"
)

// CleanText replaces characters that are not printable by spaces: control characters, terminal escapes, and characters
// that change the direction of text. Text that others chose (the name of a process, the model of a device, a driver's
// message) is shown on pages and terminals.
func CleanText(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(s, " "))
}

// Clean applies CleanText to every text of the inventory.
func (i *Inventory) Clean() { clean(reflect.ValueOf(i).Elem()) }

func clean(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(CleanText(v.String()))
	case reflect.Struct:
		for n := range v.NumField() {
			clean(v.Field(n))
		}
	case reflect.Slice:
		for n := range v.Len() {
			clean(v.Index(n))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			clean(v.Elem())
		}
	}
}
