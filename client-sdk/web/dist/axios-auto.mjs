// src/axios_auto.ts
import axios from "axios";
import { guardAxios } from "./axios.mjs";
guardAxios(axios);
