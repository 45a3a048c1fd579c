"""The rows behind `faults.py`: one code a line.

XIDs and SXids: code, class, recovery, name. NVLink rules: XID, unit (by older and newer drivers),
status in hex, reason, recovery, fatal, side, where to look.
"""

XIDS = """
1 unused contact_support not in use
2 unused contact_support not in use
3 unused contact_support not in use
4 unused contact_support not in use
5 unused contact_support not in use
6 unused contact_support not in use
7 unused contact_support not in use
8 driver restart_app channel timed out
9 unused contact_support not in use
10 unused contact_support not in use
11 program restart_app invalid command stream
12 unused contact_support not in use
13 program restart_app exception in a kernel
14 notice ignore test error
15 unused contact_support not in use
16 unused contact_support not in use
17 unused contact_support not in use
18 unused contact_support not in use
19 unused contact_support not in use
20 unused contact_support not in use
21 unused contact_support not in use
22 unused contact_support not in use
23 unused contact_support not in use
24 unused contact_support not in use
25 program restart_app illegal command stream
26 unused contact_support not in use
27 unused contact_support not in use
28 unused contact_support not in use
29 unused contact_support not in use
30 unused contact_support not in use
31 program restart_app page fault in device memory
32 program restart_app corrupted command stream
33 unused contact_support not in use
34 unused contact_support not in use
35 unused contact_support not in use
36 unused contact_support not in use
37 program ignore command that the firmware does not know
38 driver ignore firmware watchdog fired
39 driver restart_app copy engine 0 error
40 driver restart_app copy engine 1 error
41 driver restart_app copy engine 2 error
42 unused contact_support not in use
43 program ignore channel reset after a fault of its program
44 driver ignore fault during a context switch
45 follows follow_other channels cleaned up after an earlier error
46 driver reset_device device stopped processing
47 unused contact_support not in use
48 hardware reset_device double-bit memory error
49 unused contact_support not in use
50 unused contact_support not in use
51 unused contact_support not in use
52 unused contact_support not in use
53 unused contact_support not in use
54 hardware inspect auxiliary power is not connected
55 unused contact_support not in use
56 unused contact_support not in use
57 unused contact_support not in use
58 unused contact_support not in use
59 unused contact_support not in use
60 driver restart_app video processor exception
61 unused contact_support not in use
62 hardware reset_device internal microcontroller halted
63 hardware ignore memory row remapped
64 hardware reset_device memory row could not be remapped
65 unused contact_support not in use
66 driver ignore illegal register access by the driver
67 driver ignore access forbidden to the driver
68 driver restart_app video decoder 0 error
69 program restart_app wrong class of engine object
70 driver restart_app copy engine 3 error
71 driver restart_app copy engine 4 error
72 driver restart_app copy engine 5 error
73 unused contact_support not in use
74 nvlink reset_device NVLink error
75 driver restart_app copy engine 6 error
76 driver restart_app copy engine 7 error
77 driver restart_app copy engine 8 error
78 driver update_software virtual device did not start
79 hardware reboot_host fell off the bus
80 program restart_app command stream with a wrong checksum
81 unused contact_support not in use
82 driver restart_app JPEG decoder 0 error
83 driver restart_app video decoder 1 error
84 driver restart_app video decoder 2 error
85 driver restart_app copy engine 9 error
86 driver restart_app optical flow engine 0 error
87 unused contact_support not in use
88 driver restart_app video decoder 3 error
89 driver restart_app video decoder 4 error
90 unused contact_support not in use
91 unused contact_support not in use
92 hardware ignore many single-bit memory errors
93 notice ignore configuration memory written too often
94 hardware restart_app contained memory error
95 hardware reset_device uncontained memory error
96 driver restart_app video decoder 5 error
97 driver restart_app video decoder 6 error
98 driver restart_app video decoder 7 error
99 driver restart_app JPEG decoder 1 error
100 driver restart_app JPEG decoder 2 error
101 driver restart_app JPEG decoder 3 error
102 driver restart_app JPEG decoder 4 error
103 driver restart_app JPEG decoder 5 error
104 driver restart_app JPEG decoder 6 error
105 driver restart_app JPEG decoder 7 error
106 notice ignore test message
107 notice ignore test message
108 notice ignore remote translation error, not in use
109 driver reset_device context switch timed out
110 hardware reset_device security fault
111 unused contact_support not in use
112 unused contact_support not in use
113 unused contact_support not in use
114 unused contact_support not in use
115 unused contact_support not in use
116 unused contact_support not in use
117 unused contact_support not in use
118 unused contact_support not in use
119 driver reset_device system processor did not answer
120 driver reset_device system processor failed
121 hardware ignore chip-to-chip link error
122 unused contact_support not in use
123 unused contact_support not in use
124 unused contact_support not in use
125 unused contact_support not in use
126 driver restart_app copy engine 10 error
127 driver restart_app copy engine 11 error
128 driver restart_app copy engine 12 error
129 driver restart_app copy engine 13 error
130 driver restart_app copy engine 14 error
131 driver restart_app copy engine 15 error
132 driver restart_app copy engine 16 error
133 driver restart_app copy engine 17 error
134 driver restart_app copy engine 18 error
135 driver restart_app copy engine 19 error
136 nvlink reset_device link training failed
137 nvlink ignore remote end refused an NVLink access
138 unused contact_support not in use
139 driver restart_app optical flow engine 1 error
140 hardware reset_device uncorrected memory error got away
141 driver ignore fast path error
142 driver contact_support video encoder 3 error
143 hardware reset_device device did not initialise
144 nvlink see_text NVLink: switch adapter
145 nvlink see_text NVLink: read and write logic
146 nvlink see_text NVLink: transaction layer
147 nvlink see_text NVLink: crossbar exchange
148 nvlink see_text NVLink: power control
149 nvlink see_text NVLink: link layer
150 nvlink see_text NVLink: management engine
151 driver reboot_host key rotation failed
152 driver ignore deep learning engine translation error
153 driver ignore deep learning engine timed out
154 follows see_text recovery action of the device changed
155 nvlink reset_device NVLink error defined by software
156 hardware reset_device resource retired
157 hardware ignore resource could not be retired
158 hardware reset_device fatal device time-out
159 follows follow_other coherent interface error without data
160 driver ignore channel retired
161 driver ignore channel could not be retired
162 notice ignore power smoothing circuit in use again
163 notice ignore power smoothing circuit out of use
164 notice ignore power smoothing circuit near the end of its life
165 hardware contact_support power smoothing circuit worn out
166 nvlink reset_device NVLink traffic before its encryption was set up
167 hardware reboot_host fatal PCIe time-out
168 hardware contact_support part of the device memory is lost
169 hardware reset_device security controller halted
170 nvlink contact_support NVLink interrupt in confidential mode
171 hardware reset_device uncorrectable error in device memory (details of 48)
172 hardware reset_device uncorrectable error in on-chip memory (details of 48)
"""

SXIDS = """
10001 driver contact_support privileged access failed
10002 driver contact_support privileged access timed out
10003 nvlink reset_fabric interrupt that nobody handles
10004 hardware inspect switch too hot
10005 notice inspect switch cool again
11001 nvlink reset_fabric inbound invalid command
11004 nvlink reboot_host access list refuses the route
11009 nvlink reset_fabric inbound invalid VCSet
11012 hardware ignore single-bit error, corrected
11013 hardware reset_fabric inbound header double-bit error
11018 hardware reset_fabric inbound RID double-bit error
11019 hardware reset_fabric inbound RLAN double-bit error
11020 hardware reset_fabric inbound control parity
11021 hardware ignore single-bit error, corrected
11022 hardware ignore single-bit error, corrected
11023 hardware ignore single-bit error, corrected
12001 nvlink reset_fabric outbound crossbar overflow
12002 nvlink reset_fabric outbound packet route
12020 nvlink reset_fabric outbound sequence ID error
12021 hardware ignore single-bit error, corrected
12022 hardware reset_fabric outbound input double-bit error
12023 hardware ignore single-bit error, corrected
12024 hardware reset_fabric outbound output double-bit error
12025 nvlink reset_fabric outbound credit overflow
12026 nvlink reset_fabric outbound destination request ID error
12027 nvlink reset_fabric outbound destination response ID error
12028 nvlink reboot_host privileged write failed on the way out
12030 hardware reset_fabric outbound control parity error
12031 hardware reset_fabric outbound credit parity error
12032 nvlink reset_fabric outbound flit type mismatch
14017 nvlink reset_fabric address translation timed out
15001 nvlink reset_fabric route buffer over- or underflow
15006 nvlink reset_fabric route transdone over- or underflow
15008 hardware ignore single-bit error, corrected
15009 hardware reset_fabric route GLT double-bit error
15010 hardware reset_fabric route parity
15011 hardware ignore single-bit error, corrected
15012 hardware reset_fabric route incoming double-bit error
15013 hardware reset_fabric route credit parity
19047 hardware reset_fabric NCISOC header double-bit error
19048 hardware reset_fabric NCISOC data double-bit error
19049 hardware ignore single-bit error, corrected
19054 hardware reset_fabric header memory double-bit error
19055 hardware ignore single-bit error, corrected
19056 hardware reset_fabric data 0 memory double-bit error
19057 hardware ignore single-bit error, corrected
19058 hardware reset_fabric data 1 memory double-bit error
19059 hardware ignore single-bit error, corrected
19060 hardware reset_fabric request memory header double-bit error
19061 hardware reset_fabric request memory data double-bit error
19062 hardware ignore single-bit error, corrected
19063 hardware reset_fabric response memory header double-bit error
19064 hardware reset_fabric response memory data double-bit error
19065 hardware ignore single-bit error, corrected
19066 hardware reset_fabric common memory header double-bit error
19067 hardware reset_fabric common memory data double-bit error
19068 hardware ignore single-bit error, corrected
19069 hardware reset_fabric response 1 memory header double-bit error
19070 hardware reset_fabric response 1 memory data double-bit error
19071 hardware ignore single-bit error, corrected
19084 nvlink reset_fabric heartbeat of a switch unit missed
20001 nvlink ignore packet sent again
20009 nvlink ignore many receive errors for a short time
20012 nvlink inspect connection broken or inconsistent
20034 nvlink reset_fabric link training failed
22003 nvlink reset_fabric link microcontroller halted
22011 nvlink reset_fabric link microcontroller reported an outside error
22012 nvlink inspect link microcontroller found no link
22013 nvlink ignore link microcontroller asked for a change
23001 nvlink reset_fabric inbound SRC-VC buffer overflow
23002 nvlink reset_fabric inbound SRC-VC buffer underflow
23003 nvlink reset_fabric outbound DST-VC credit overflow
23004 nvlink reset_fabric outbound DST-VC credit underflow
23005 nvlink reset_fabric inbound packet burst error
23006 nvlink reset_fabric inbound packet sticky error
23007 nvlink reset_fabric gaps in inbound traffic
23008 nvlink reset_fabric inbound packet invalid destination error
23009 hardware reset_fabric inbound packet parity error
23010 nvlink reset_fabric inbound SRC-VC buffer overflow
23011 nvlink reset_fabric inbound SRC-VC buffer underflow
23012 nvlink reset_fabric outbound DST-VC credit overflow
23013 nvlink reset_fabric outbound DST-VC credit underflow
23014 nvlink reset_fabric inbound packet burst error
23015 nvlink reset_fabric inbound packet sticky error
23016 nvlink reset_fabric gaps in inbound traffic
23017 hardware reset_fabric inbound credit parity error
24001 hardware ignore single-bit error, corrected
24002 hardware ignore single-bit error, corrected
24003 hardware ignore single-bit error, corrected
24004 hardware reset_fabric sourcetrack TCEN0 store double-bit error
24005 hardware reset_fabric sourcetrack TCEN0 TD store double-bit error
24006 hardware reset_fabric sourcetrack TCEN1 store double-bit error
24007 nvlink reset_fabric source tracking timed out
"""

NVLINK_RULES = """
144 SAW_MVB 1 0 ignore no hardware support
144 SAW_MVB 2 0 reset_device yes hardware support
144 SAW_MVB 4 0 ignore no hardware -
144 SAW_MVB 8 0 ignore no hardware support
144 SAW_MVB 10 0 reset_device yes hardware support
144 SAW_MVB 20 0 ignore no hardware -
145 RLW_CTRL 80000000 0 ignore no software support
145 RLW_REMAP 1 0 follow_other no software support
145 RLW_REMAP 2 0 follow_other no software support
145 RLW_REMAP 4 0 follow_other no software link
145 RLW_REMAP 8 0 follow_other no software link
145 RLW_REMAP 10 0 follow_other no software link
145 RLW_REMAP 20 0 follow_other no software link
145 RLW_REMAP 40 0 reset_device yes hardware support
145 RLW_REMAP 80 0 reset_device yes hardware support
145 RLW_REMAP 100 0 ignore no hardware -
145 RLW_REMAP 200 0 ignore no hardware -
145 RLW_REMAP 80000000 0 ignore no software support
145 RLW_RSPCOL 1 0 ignore no hardware -
145 RLW_RSPCOL 2 0 reset_device yes hardware support
145 RLW_RSPCOL 80000000 0 ignore no software support
145 RLW_RXPIPE 1 0 ignore no software support
145 RLW_RXPIPE 2 0 ignore no software support
145 RLW_RXPIPE 4 0 ignore no software support
145 RLW_RXPIPE 8 0 ignore no either support
145 RLW_RXPIPE 80000000 0 ignore no software support
145 RLW_SRC_TRACK 1 0 reset_device yes hardware support
145 RLW_SRC_TRACK 2 0 ignore no hardware -
145 RLW_SRC_TRACK 4 0 follow_other no either -
145 RLW_SRC_TRACK 8 0 follow_other no either -
145 RLW_SRC_TRACK 10 0 reset_device yes hardware support
145 RLW_SRC_TRACK 20 0 reset_device yes hardware support
145 RLW_SRC_TRACK 80000000 0 ignore no software support
145 RLW_TAGSTATE 1 0 ignore no hardware -
145 RLW_TAGSTATE 2 0 reset_device yes hardware support
145 RLW_TAGSTATE 10000 0 ignore no hardware -
145 RLW_TAGSTATE 20000 0 reset_device yes hardware support
145 RLW_TAGSTATE 100000 0 reset_device yes hardware support
145 RLW_TAGSTATE 80000000 0 ignore no software support
146 TLW_CTRL 1 0 ignore no hardware -
146 TLW_CTRL 2 0 ignore no hardware support
146 TLW_CTRL 4 0 reset_device yes hardware support
146 TLW_CTRL 80000000 0 ignore no software support
146 TLW_RX/TLW_RX_PIPE0 1 0 ignore no hardware -
146 TLW_RX/TLW_RX_PIPE0 2 0 ignore no hardware support
146 TLW_RX/TLW_RX_PIPE0 4 0 reset_device yes hardware support
146 TLW_RX/TLW_RX_PIPE0 80000000 0 ignore no software support
146 TLW_RX/TLW_RX_PIPE1 1 0 ignore no hardware -
146 TLW_RX/TLW_RX_PIPE1 2 0 ignore no hardware support
146 TLW_RX/TLW_RX_PIPE1 4 0 reset_device yes hardware support
146 TLW_RX/TLW_RX_PIPE1 80000000 0 ignore no software support
146 TLW_TX/TLW_TX_PIPE0 1 0 ignore no hardware -
146 TLW_TX/TLW_TX_PIPE0 2 0 ignore no hardware support
146 TLW_TX/TLW_TX_PIPE0 4 0 reset_device yes hardware support
146 TLW_TX/TLW_TX_PIPE0 80000000 0 ignore no software support
146 TLW_TX/TLW_TX_PIPE1 1 0 ignore no hardware -
146 TLW_TX/TLW_TX_PIPE1 2 0 ignore no hardware support
146 TLW_TX/TLW_TX_PIPE1 4 0 reset_device yes hardware support
146 TLW_TX/TLW_TX_PIPE1 80000000 0 ignore no software support
147 TREX 1 0 ignore no software support
147 TREX 80000000 0 ignore no software support
148 NVLPW_CTRL/NVLPW 80000000 0 ignore no software support
149 NETIR/NETIR_INT 0 0 reset_device link either peer
149 NETIR_BER_EVENT 0 0 ignore no hardware cables
149 NETIR_BER_EVENT 1 0 ignore no hardware cables
149 NETIR_BER_EVENT 2 0 ignore no hardware cables
149 NETIR_BER_EVENT 3 0 ignore no hardware cables
149 NETIR_LINK_EVT/NETIR_LINK_DOWN 0 0 reset_device link either peer
149 NETIR_LINK_EVT/NETIR_LINK_DOWN 0 1 reset_device link either repeats
149 NETIR_LINK_EVT/NETIR_LINK_DOWN 0 2 reset_device link either link
149 NETIR_LINK_EVT/NETIR_LINK_DOWN 0 4 reset_device link hardware link
149 NETIR_LINK_EVT/NETIR_LINK_DOWN 0 10 reset_device link hardware link
149 NETIR_LINK_EVT/NETIR_LINK_DOWN 0 15 reset_device link software software
149 NETIR_LINK_EVT/NETIR_LINK_DOWN 0 16 reset_device link software software_link
149 NETIR_LINK_EVT/NETIR_LINK_DOWN 0 17 reset_device link software software
149 NETIR_LINK_EVT/NETIR_LINK_DOWN 0 18 reset_device link software software_link
149 NETIR_LINK_EVT/NETIR_LINK_DOWN 0 21 reset_device link either peer
149 NETIR_LINK_EVT/NETIR_LINK_DOWN 0 22 reset_device link software software
149 NETIR_LINK_EVT/NETIR_LINK_DOWN 0 32 reset_device link either peer
149 NETIR_LINK_EVT/NETIR_LINK_DOWN 0 33 reset_device link either peer
149 NETIR_LINK_EVT/NETIR_LINK_DOWN 0 34 reset_device link either peer
149 NETIR_LINK_EVT/NETIR_LINK_DOWN 0 35 reset_device link hardware peer
149 NETIR_LINK_EVT/NETIR_LINK_DOWN 0 36 reset_device link either peer
149 NETIR_LINK_EVT/NETIR_LINK_DOWN 0 37 reset_device link either peer
149 NETIR_LINK_EVT/NETIR_LINK_DOWN 0 38 ignore link either software
149 NETIR_LINK_EVT/NETIR_LINK_DOWN 0 40 ignore yes software host
149 NETIR_LINK_EVT/NETIR_LINK_DOWN 0 42 reset_device link hardware cables
149 NETIR_LINK_EVT/NETIR_LINK_DOWN 0 43 reset_device link hardware cables
149 NETIR_MFDE_EVENT 1 0 reset_device yes either support
149 NETIR_MFDE_EVENT 3 0 ignore no - -
149 NETIR_MFDE_EVENT 4 0 reset_device yes either support
149 NETIR_MFDE_EVENT 5 0 reset_device yes either support
149 NETIR_MFDE_EVENT 7 0 reset_device yes either support
150 MSE_WATCHDOG 0 0 reset_device yes firmware support
"""
