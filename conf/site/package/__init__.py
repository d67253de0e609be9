"""The built documentation site; `pinlater.http.manual` serves it."""
