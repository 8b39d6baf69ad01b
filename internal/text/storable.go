package text

import (
	"reflect"
	"strings"
)

// WithoutNUL removes the NUL characters from every text that v points to, in structs, lists and maps: PostgreSQL stores
// them neither as text nor in JSON. Texts in unexported fields stay as they are.
func WithoutNUL(v any) { withoutNUL(reflect.ValueOf(v)) }

func withoutNUL(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() && strings.IndexByte(v.String(), 0) >= 0 {
			v.SetString(strings.ReplaceAll(v.String(), "\x00", ""))
		}
	case reflect.Struct:
		for n := range v.NumField() {
			withoutNUL(v.Field(n))
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		for n := range v.Len() {
			withoutNUL(v.Index(n))
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			key.Set(it.Key())
			value.Set(it.Value())
			withoutNUL(key)
			withoutNUL(value)
			v.SetMapIndex(it.Key(), reflect.Value{})
			v.SetMapIndex(key, value)
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			withoutNUL(v.Elem())
		}
	}
}
