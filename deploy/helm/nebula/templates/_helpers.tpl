{{- define "nebula.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* 52 characters: names of pods and revisions of a StatefulSet get a suffix. */}}
{{- define "nebula.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains (include "nebula.name" .) .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "nebula.name" .) | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "nebula.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: nebula
{{- end }}

{{- define "nebula.selector" -}}
app.kubernetes.io/name: {{ include "nebula.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: broker
{{- end }}

{{- define "nebula.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "nebula.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "nebula.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "nebula.usersSecret" -}}
{{- .Values.auth.existingSecret | default (printf "%s-users" (include "nebula.fullname" .)) }}
{{- end }}

{{- define "nebula.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "nebula.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* A text as TOML has it. JSON's escapes are valid in TOML's basic strings. */}}
{{- define "nebula.text" -}}
{{ . | toJson }}
{{- end }}

{{/* Helm reads numbers as floats, which it writes as 5.36870912e+08. */}}
{{- define "nebula.number" -}}
{{- if kindIs "string" . }}{{ . | toJson }}
{{- else if eq (toString (floor .)) (toString (float64 .)) }}{{ int64 . }}
{{- else }}{{ . }}
{{- end }}
{{- end }}

{{- define "nebula.settings" -}}
log_level = {{ include "nebula.text" .Values.logLevel }}
{{- if not .Values.persistence.enabled }}
store = "memory"
{{- end }}
{{- if .Values.rights }}
rights = ["rights.toml"]
{{- end }}
{{- if .Values.metrics.existingSecret }}
metrics_token = "metrics.token"
{{- end }}
{{- if .Values.plain.enabled }}

[[listener]]
host = "0.0.0.0"
port = {{ int64 .Values.plain.port }}
{{- if .Values.auth.anonymous }}
anonymous = true
{{- end }}
{{- end }}
{{- if .Values.tls.enabled }}

[[listener]]
host = "0.0.0.0"
port = {{ int64 .Values.tls.port }}
tls_cert = "tls/tls.crt"
tls_key = "tls/tls.key"
{{- if .Values.tls.clientCa }}
client_ca = "tls/ca.crt"
{{- end }}
{{- if .Values.auth.anonymous }}
anonymous = true
{{- end }}
{{- end }}

[[listener]]
host = "0.0.0.0"
port = {{ int64 .Values.http.port }}
http = true
{{- if .Values.http.calls }}
calls = true
{{- end }}
{{- with .Values.http.origins }}
origins = {{ toJson . }}
{{- end }}
{{- with .Values.http.hosts }}
hosts = {{ toJson . }}
{{- end }}
{{- if .Values.auth.anonymous }}
anonymous = true
{{- end }}

[identity]
users = "users.toml"
{{- if .Values.auth.jwks }}
jwks = "keys.json"
{{- end }}
{{- with .Values.auth.audience }}
audience = {{ include "nebula.text" . }}
{{- end }}
{{- with .Values.auth.issuer }}
issuer = {{ include "nebula.text" . }}
{{- end }}
{{- with .Values.limits }}

[limits]
{{- range $name, $value := . }}
{{ $name }} = {{ include "nebula.number" $value }}
{{- end }}
{{- end }}
{{- with .Values.extraSettings }}

{{ . | trim }}
{{- end }}
{{- end }}
