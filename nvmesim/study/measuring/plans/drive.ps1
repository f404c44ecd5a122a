# Measures a drive in {{ "%.0f" | format(minutes) }} minutes.{{ " IT OVERWRITES DRIVE #1: put your own number." if writes }}
# Run it in a folder of its own as administrator, then:
# nvmesim calibrate *.xml --captured-on windows-2019 -o drive.toml --report drive.html
$drive = '#1'
{% for row in rows %}
# {{ row.tells }}
diskspd.exe -b{{ row.kib }}K -t{{ row.jobs }} -o{{ row.depth }} -w{{ "%.0f" | format(100 * (1 - row.read_share)) }} {{ "-r" if row.op.startswith("rand") else "-s" }} -Sh -L -W{{ ramp }} -d{{ row.seconds - ramp }} -Rxml $drive | Out-File -Encoding utf8 {{ row.name }}.xml
{% endfor %}
